/** What the admin does, and what became of it, said at the foot of the window. */

import { get } from "./api.js";
import { unlessUndone } from "./asking.js";
import { button, say, the } from "./dom.js";

const RETRY_MS = 2000;
const answer = the["admin-answer"];

/** `work` gives false if nothing was done after all. */
export async function act(words, work, place = answer) {
  try {
    const done = await work();
    say(place, done === false ? "" : `${words}: done.`);
    return done;
  } catch ({ message }) {
    say(place, `${words}: ${message}`, true);
  }
}

/** What reads all of these for a table. If it cannot, that is said there, and it is tried again while the page is looked at;
 * an older answer changes nothing. */
export function looking(path, show, failed) {
  let [turn, timer] = [0, 0];
  const later = (look) => { timer = setTimeout(() => (document.hidden ? later(look) : look()), RETRY_MS); };
  return async function look() {
    clearTimeout(timer);
    turn += 1;
    const mine = turn;
    try {
      const all = await get(path);
      if (mine === turn) show(all);
    } catch ({ message }) {
      if (mine !== turn) return;
      failed(`Cannot be read: ${message}; trying again.`);
      later(look);
    }
  };
}

export const action = (verb, name, work) => button(verb, name, () => act(`${verb} ${name}`, work));

export const undoable = (verb, name, work) =>
  button(verb, name, () => unlessUndone(verb, name, () => act(`${verb} ${name}`, work)));
