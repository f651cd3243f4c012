// What was handed on already, and whether what comes next joins it. Pure: no network, no clock.
//
// Nothing is handed on twice and nothing is passed over, as far as the Source tells. Several
// changes may have one position, so those at the cursor are remembered: all that come while the
// Source's clock is behind the cursor, too.

import { NotJoined } from "./errors.js";
import { later, positionOf } from "./position.js";

const KNOWN_AGAIN = 100; // notifications of a channel, if it repeats itself
const SET_BACK = "the Source was set back";

/** A cursor that moves over a channel and over Change Lists. */
export class Timeline {
  cursor;

  #atCursor = new Map(); // of each change at the cursor: its signs, by their text
  #heard; // up to where the channel itself has sent notifications
  #latest = []; // the newest of these: a channel may repeat itself
  #whenSetBack;

  /** `whenSetBack(position, problem)` is called where the Source now ends before what it has sent. */
  constructor(cursor, whenSetBack = warn) {
    this.cursor = cursor;
    this.#whenSetBack = whenSetBack;
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

  /** Where the channel said that it begins: if that is before what it has sent, it was set back. */
  opened(position) {
    if (this.#heard !== undefined && position < this.#heard) {
      const problem = `the channel ends at ${position} now, and at ${this.#heard} before`;
      this.goBack(position, `${problem}: ${SET_BACK}`);
    }
    this.begin(position);
  }

  /** What comes now is handed on, though more had come before; undefined is before all. */
  goBack(position, problem) {
    this.#whenSetBack(position, problem);
    this.cursor = position;
    this.#heard = undefined;
    this.#latest = [];
    this.#atCursor.clear();
  }

  /** What lies between is given up: go on wherever the peer begins. */
  forget() {
    this.cursor = undefined;
    this.#atCursor.clear();
  }

  /**
   * What is new in a notification of the channel; `NotJoined` if something lies between.
   *
   * One that ends before another that came before it, and is none of those, is of a Source that was
   * set back: all of it is new.
   */
  joined(received) {
    const mark = `${received.from} ${received.until} ${received.timed.length}`;
    const isOlder = received.joins && this.#heard !== undefined && received.until < this.#heard;
    if (isOlder && !this.#latest.includes(mark)) {
      const problem = `a notification up to ${received.until} came after one up to ${this.#heard}`;
      this.goBack(received.from, `${problem}: ${SET_BACK}`);
    }
    if (this.cursor !== undefined && received.joins && received.from > this.cursor) {
      throw new NotJoined(`nothing came between ${this.cursor} and ${received.from}`);
    }
    if (received.joins) {
      this.#heard = later(received.until, this.#heard);
      this.#latest = [...this.#latest.slice(1 - KNOWN_AGAIN), mark];
    }
    return this.newIn(received);
  }

  /** What was not handed on yet, if anything, from the cursor on; that moves to its end. */
  newIn(received) {
    const timed = received.timed.filter((each) => this.#isNew(each));
    const from = later(received.from, this.cursor);
    const hasMoved = this.#move(received.until, timed);
    if (!timed.length && !hasMoved) return undefined;
    const isWhole = timed.length === received.timed.length && from === received.from;
    return isWhole ? received : { ...received, from, timed };
  }

  #isNew({ position, change }) {
    if (this.cursor === undefined || position > this.cursor) return true;
    return position === this.cursor && !this.#isKnown(change);
  }

  /** A channel may say less of a change than a list does: a sign counts if both have it. */
  #isKnown(change) {
    const known = this.#atCursor.get(keyOf(change));
    if (!known) return false;
    const signs = signsOf(change);
    return known.has(String(signs)) || [...known.values()].some((each) => agree(signs, each));
  }

  /** Whether the cursor is further than it was. */
  #move(until, timed) {
    const isFurther = this.cursor === undefined || until > this.cursor;
    if (isFurther) {
      this.cursor = until;
      this.#atCursor.clear();
    }
    for (const { change } of timed.filter(({ position }) => position === this.cursor)) {
      const signs = signsOf(change);
      const known = this.#atCursor.get(keyOf(change)) ?? new Map();
      this.#atCursor.set(keyOf(change), known.set(String(signs), signs));
    }
    return isFurther;
  }
}

function warn(_, problem) {
  console.warn(problem);
}

function keyOf({ loc, change }) {
  return `${change} ${loc}`;
}

/** What tells changes of one resource apart: both times that the Source may say, and the digest. */
function signsOf({ datetime, lastmod, hash }) {
  return [positionOf(datetime), positionOf(lastmod), hash];
}

function agree(signs, others) {
  const pairs = signs.map((sign, index) => [sign, others[index]]);
  return pairs.every((pair) => pair.includes(undefined) || pair[0] === pair[1]);
}
