// What was handed on already, and whether what comes next joins it. Pure: no network, no clock.
//
// Nothing is handed on twice and nothing is passed over, as far as the Source tells. Several
// changes may have one position, so those at the cursor are remembered.

import { NotJoined } from "./errors.js";

/** A cursor that moves over a channel and over Change Lists. */
export class Timeline {
  cursor;

  #atCursor = new Map(); // of each change at the cursor: its digests

  constructor(cursor) {
    this.cursor = cursor;
  }

  /**
   * Where the peer said that it begins.
   *
   * If that is after our cursor, nothing lies between: else it would have refused the cursor.
   */
  begin(position) {
    if (this.cursor !== undefined && !(position > this.cursor)) return;
    this.cursor = position;
    this.#atCursor.clear();
  }

  /** What lies between is given up: go on wherever the peer begins. */
  forget() {
    this.cursor = undefined;
    this.#atCursor.clear();
  }

  /** What is new in a notification; `NotJoined` if something lies between. */
  joined(received) {
    if (this.cursor !== undefined && received.joins && received.from > this.cursor) {
      throw new NotJoined(`nothing came between ${this.cursor} and ${received.from}`);
    }
    return this.newIn(received);
  }

  /** What was not handed on yet, if anything; the cursor moves to its end. */
  newIn(received) {
    const timed = received.timed.filter((each) => this.#isNew(each));
    this.#move(received.until, timed);
    if (timed.length === received.timed.length) return received;
    return timed.length ? { ...received, timed } : undefined;
  }

  #isNew({ position, change }) {
    if (this.cursor === undefined || position > this.cursor) return true;
    return position === this.cursor && !this.#isKnown(change);
  }

  /** A channel may say less of a change than a list does: a digest counts if both have it. */
  #isKnown(change) {
    const digests = this.#atCursor.get(keyOf(change));
    if (!digests) return false;
    return change.hash === undefined || digests.has(change.hash) || digests.has(undefined);
  }

  #move(until, timed) {
    if (this.cursor === undefined || until > this.cursor) {
      this.cursor = until;
      this.#atCursor.clear();
    }
    for (const { change } of timed.filter(({ position }) => position === this.cursor)) {
      const known = this.#atCursor.get(keyOf(change)) ?? new Set();
      this.#atCursor.set(keyOf(change), known.add(change.hash));
    }
  }
}

function keyOf({ loc, change }) {
  return `${change} ${loc}`;
}
