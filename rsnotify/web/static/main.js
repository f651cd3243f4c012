/**
 * The frame of the views: where the links lead, the token, and the one view that is shown.
 */

import { submits, tell, the } from "./dom.js";
import { problem, rights, set, view, VIEWS } from "./here.js";
import { change, takeFromAddress, token } from "./token.js";

const answer = the.token.querySelector("output");

for (const link of document.querySelectorAll("nav a")) {
  const url = new URL(link.href);
  if (set) url.searchParams.set("set", set.name);
  link.href = url.search;
  if (url.searchParams.get("view") === view) link.ariaCurrent = "page";
}
for (const place of document.querySelectorAll(".set-name")) place.textContent = set?.name ?? "a set";
document.title = `${view === "set" && set ? set.name : VIEWS[view]} – rsnotify`;
if (set || !["set", "debugger"].includes(view)) {
  document.querySelector(`[data-view=${view}]`).hidden = false;
  import(`./${view}.js`).catch(() => problem("The hub did not send all of this page: open it again."));
}

const isUsed = token() !== "";
the["no-token"].hidden = isUsed;
the.forget.hidden = !isUsed;
if (isUsed) {
  the.key.textContent = "Token in use";
  tell(answer, rights.admin ? "You use the admin token." : "Your token is known.");
}
if (history.state !== null) { // it was changed just now
  the.key.focus();
  if (history.state) {
    tell(answer, `The token is forgotten: ${history.state}.`, true);
    the.token.showPopover();
  }
  history.replaceState(null, "");
}
submits(the.token, ({ secret }) => {
  try {
    change(secret.value.trim());
  } catch ({ message }) {
    tell(answer, message, true);
  }
});
the.forget.onclick = () => change("");
onhashchange = () => { if (takeFromAddress()) change(token()); };
