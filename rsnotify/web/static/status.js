/**
 * What the hub says of itself, asked for again and again while the page is looked at.
 */

import { get, setPath } from "./api.js";
import { change } from "./token.js";

const PAUSE_MS = 2000;
const SHARE = 5; // an answer that takes long is asked for less often

let timer = 0;
let turn = 0; // what was asked before the last is not waited for

/** `query()` says of which sets; `done` gets each answer, or nothing if there was none. */
export async function watch(query, done) {
  clearTimeout(timer);
  turn += 1;
  const [begun, mine] = [performance.now(), turn];
  if (!document.hidden) {
    const status = await get("api/status", query()).catch(({ isOfToken, message }) => { if (isOfToken) change("", message); });
    if (mine !== turn) return;
    done(status);
  }
  timer = setTimeout(watch, PAUSE_MS + SHARE * (performance.now() - begun), query, done);
}

/** How many resources a set has now. */
export const resources = async (set) => (await get(`${setPath(set)}/resources`)).resources;

export const readersOf = (set) =>
  set.channels.flatMap(({ readers }) => Object.values(readers)).reduce((sum, each) => sum + each, 0);
