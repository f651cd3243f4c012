// The changes of one list in the order of their times, of which a Source may break the rule.
//
// A list that begins with the newest is held to its end, and turned round. In any other a change that
// is older than one before it, to the same resource, is left out, as it says nothing of what there is
// now. Others may stand in any order: some Sources list what is gone last.

import { positionOf } from "./position.js";

const BY_CHANCE = 2; // so few changes may be newest first by chance
export const MOST_HELD = 200_000;

export class ChangeOrder {
  #held = []; // undefined once it is known to be in order
  #isTurned = false;
  #newest = new Map(); // of each resource
  #older = [];

  /** What is wrong, in words; undefined if nothing is. */
  get problem() {
    if (this.#isTurned) return "its changes are listed newest first: they are turned round";
    const count = this.#older.length;
    if (!count) return undefined;
    return `skipped: ${this.#older[0]}, older than a change before it; ${count} in all`;
  }

  /** Those of these entries, and of the ones before them, that can be handed on. */
  feed(entries) {
    if (this.#held === undefined) return this.#withoutOlder(entries);
    this.#held = this.#held.concat(entries);
    this.#isTurned ||= isNewestFirst(this.#held);
    const isHeld = this.#isTurned || this.#held.length <= BY_CHANCE;
    return isHeld && this.#held.length <= MOST_HELD ? [] : this.close();
  }

  /** The rest, at the end of the list. */
  close() {
    const held = this.#held ?? [];
    this.#held = undefined;
    return this.#isTurned ? turned(held) : this.#withoutOlder(held);
  }

  #withoutOlder(entries) {
    return entries.filter((entry) => {
      const at = changedAt(entry);
      if (at === undefined) return true;
      if (at < this.#newest.get(entry.loc)) {
        this.#older.push(entry.loc.slice(0, 200));
        return false;
      }
      if (this.#newest.size >= MOST_HELD) this.#newest.clear();
      this.#newest.set(entry.loc, at);
      return true;
    });
  }
}

function isNewestFirst(entries) {
  const times = entries.map(changedAt);
  if (times.length <= BY_CHANCE || times.includes(undefined) || times[0] === times.at(-1)) {
    return false;
  }
  return times.every((time, index) => index === 0 || times[index - 1] >= time);
}

/** The oldest first; each without a time stays behind the one that happened before it. */
function turned(entries) {
  let at = "";
  const timed = entries.reverse().map((entry) => {
    at = changedAt(entry) ?? at;
    return { entry, at };
  });
  timed.sort((one, other) => (one.at < other.at ? -1 : Number(one.at > other.at)));
  return timed.map(({ entry }) => entry);
}

function changedAt({ md }) {
  return positionOf(md.datetime);
}
