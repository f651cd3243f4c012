/** The hub's status, asked for while the page is looked at. */

import { get, setPath } from "./api.js";
import { number } from "./dom.js";
import { change } from "./token.js";

const PAUSE_MS = 2000;
const SHARE = 5; // an answer that takes long is asked for less often

let timer = 0;
let turn = 0; // older answers are dropped

/** `done` gets each answer, or nothing. */
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

/** Show how many resources the set has now. */
export async function count(place, { name, newest }) {
  if (place.counted === newest) return;
  place.counted = newest;
  const found = await get(`${setPath(name)}/resources`).catch(() => null);
  if (found) Object.assign(place, { value: found.resources, textContent: number(found.resources) });
  else place.counted = "";
}

export const readersOf = (set) =>
  set.channels.flatMap(({ readers }) => Object.values(readers)).reduce((sum, each) => sum + each, 0);
