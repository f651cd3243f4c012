/** The view and the set that the address names, and what the token of this tab may do there. */

import { get } from "./api.js";
import { the } from "./dom.js";
import { change, token } from "./token.js";

const VIEWS = ["overview", "set", "change", "debugger", "validator", "admin"];
const RETRY_MS = 2000;

export const asked = new URLSearchParams(location.search);

if (["set", null].includes(asked.get("view"))) import("./client/rsnotify.js").catch(() => {}); // it is needed soon

export const problem = (text) => { the.problem.textContent = text; };

const name = asked.get("set");
for (const link of document.querySelectorAll("nav a")) if (name) link.search += `&set=${name}`; // before any answer

/** Where the address names no set, it is the only one there is. */
async function look() {
  let view = VIEWS.includes(asked.get("view")) ? asked.get("view") : !name ? "" : asked.has("change") ? "change" : "set";
  let set;
  if (name) [set] = await get("api/sets", { name });
  else if (!["overview", "admin"].includes(view)) {
    const [first, second] = await get("api/sets", { limit: 2 });
    if (view || !second) set = first;
    if (!set && view !== "validator") view = "overview";
  }
  const rights = token() ? await get("api/rights", set ? { name: set.name } : {}) : {};
  problem(name && !set ? `There is no set ${name}, or it is private and needs a token.` : "");
  return { view: view || "set", set, rights };
}

async function found() {
  for (;;) {
    try {
      return await look();
    } catch (error) {
      if (error.isOfToken) change("", error.message);
      problem(error.message);
      await new Promise((then) => { setTimeout(then, RETRY_MS); });
    }
  }
}

export const { view, set, rights } = await found();
