// How far the Change Lists of one reading go by their own times: whether their Source was set back.
//
// Pure: nothing is fetched. A list that was not read, or does not say when it changed, proves nothing.

import { endOf, later } from "./position.js";

const UNKNOWN = "9999-12-31T23:59:59.999999Z";
const SET_BACK = "the Source was set back, or a cache has sent an old list";

export class Furthest {
  change; // the newest that was read
  end; // the newest end that a list has stated

  #lastChange; // before these nothing is missing
  #lastEnd;

  /** Changes that were read. */
  noteChanges(timed) {
    for (const { position, change } of timed) {
      if (change.datetime === undefined) this.noteUnknown();
      else {
        this.change = later(this.change, position);
        this.noteOther(position);
      }
    }
  }

  /** The end of a list that was read: what it does not have is not there. */
  noteEnd(position) {
    this.end = later(this.end, position);
    this.#lastEnd = later(this.#lastEnd, endOf(position));
  }

  /** Up to here lists go that are not read again; or it is where one begins. */
  noteOther(position) {
    this.#lastChange = later(this.#lastChange, endOf(position));
    this.#lastEnd = later(this.#lastEnd, endOf(position));
  }

  /** A list that was not read, or says too little. */
  noteUnknown() {
    this.noteOther(UNKNOWN);
  }

  /** What is wrong with lists that have once gone as far as another reading did. */
  shorterThan({ change, end }) {
    if (isBefore(this.#lastChange, change))
      return `its Change Lists have no change of ${change}, which was read before: ${SET_BACK}`;
    if (isBefore(this.#lastEnd, end))
      return `its Change Lists end before ${end}, where they ended before: ${SET_BACK}`;
    return undefined;
  }
}

function isBefore(position, other) {
  return other !== undefined && (position === undefined || position < other);
}
