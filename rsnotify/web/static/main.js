/** The frame of the views: links, the token, and the one view that is shown. */

import { submits, say, the } from "./dom.js";
import { asked, problem, rights, set, view } from "./here.js";
import { change, takeFromAddress, token } from "./token.js";

const answer = the.token.querySelector("output");

for (const link of document.querySelectorAll("nav a")) {
  if (!link.search.includes(`view=${view}`)) continue;
  link.ariaCurrent = "page";
  document.title = `${view === "set" && set ? set.name : link.textContent} – rsnotify`;
}
for (const place of document.querySelectorAll(".set-name")) place.textContent = set?.name ?? "a set";
if (set || !["set", "change", "debugger"].includes(view)) {
  const place = document.querySelector(`[data-view=${view}]`);
  import(`./${view}.js`).then(() => { // not before: its forms would leave the page
    the.opening.hidden = true;
    place.hidden = false;
  }, () => problem("The hub did not send all of this page: open it again."));
} else the.opening.textContent = asked.get("set") ?? "No set yet";

const isUsed = token() !== "";
the["no-token"].hidden = isUsed;
the.forget.hidden = !isUsed;
if (isUsed) {
  the.key.textContent = "Token in use";
  say(answer, rights.admin ? "You use the admin token." : "Your token is known.");
}
if (history.state !== null) { // it was changed just now
  the.key.focus();
  if (history.state) {
    say(answer, `That token is not kept: ${history.state}.`, true);
    the.token.showPopover();
  }
  history.replaceState(null, "");
}
submits(the.token, ({ secret }) => {
  try {
    change(secret.value.trim());
  } catch ({ message }) {
    say(answer, message, true);
  }
});
the.token.ontoggle = () => the.secret.focus();
the.forget.onclick = () => change("");
onhashchange = () => { if (takeFromAddress()) change(token()); };
