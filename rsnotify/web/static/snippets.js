/** The set's programs to copy, in tabs; what curl would do, the page does at once. */

import { address, channelOf, SAMPLE, send } from "./api.js";
import { button, copyable, make, say, the } from "./dom.js";
import { rights, set } from "./here.js";
import { programsOf } from "./programs.js";
import { tabs } from "./tabs.js";
import { token } from "./token.js";

const LANGUAGES = { JavaScript: "javascript", Python: "python" }; // others are for a shell
const CHARACTERS = 10_000; // of an answer that are shown

const { snippets } = the;
let leaving = new AbortController(); // of what runs
const filled = the["with-token"];
filled.parentElement.hidden = !token();
filled.onchange = fill;
snippets.append(...tabs("Languages", Object.fromEntries(programs().map(([language]) => [language, []]))));
fill();

function programs() {
  return programsOf({
    hub: address("").replace(/\/$/, ""),
    set: set.name,
    channel: channelOf(set.name),
    list: address(`${set.name}/capabilitylist.xml`),
    sample: SAMPLE,
    isPrivate: set.private,
    secret: filled.checked ? token() : "",
  });
}

/** Each panel anew; the tab that is chosen stays. */
function fill() {
  const all = programs();
  leaving.abort();
  leaving = new AbortController();
  for (const panel of snippets.querySelectorAll("[role=tabpanel]")) {
    const title = document.getElementById(panel.getAttribute("aria-labelledby")).textContent;
    panel.replaceChildren(...all.filter(([language]) => language === title).flatMap(([language, what, text, request]) => {
      const made = copyable(what, text, LANGUAGES[language] ?? "shell");
      const isAllowed = request && (request.method === "GET" || rights.publish);
      return isAllowed ? [made, ...runs(made, what, request)] : [made];
    }));
  }
}

/** A button beside the code, and what the hub answers below. */
function runs(made, what, { url, method, ...options }) {
  const [state, answer] = [make.output(), make.pre({ tabIndex: 0, hidden: true })];
  let running = null;
  const name = (verb) => Object.assign(run, { textContent: verb, ariaLabel: `${verb} ${what}` });
  const run = button("Run", what, async () => {
    if (running) return running.abort();
    running = new AbortController();
    const signal = AbortSignal.any([running.signal, leaving.signal]);
    answer.hidden = false;
    answer.textContent = "";
    name("Stop");
    say(state, "Asking…");
    const begun = performance.now();
    try {
      const { status, body } = await send(method, url, { ...options, headers: { ...options.headers }, signal });
      say(state, `${status}, after ${Math.max(1, Math.round(performance.now() - begun))} ms`);
      for await (const text of body.pipeThrough(new TextDecoderStream())) answer.textContent = (answer.textContent + text).slice(-CHARACTERS);
    } catch ({ name: kind, status, message }) {
      say(state, kind === "AbortError" ? "Stopped." : `${status || ""} ${message}`.trim(), kind !== "AbortError");
    }
    running = null;
    name("Run");
  });
  made.querySelector("button").after(run);
  return [state, answer];
}
