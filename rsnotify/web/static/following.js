/**
 * A channel followed for as long as the page is open: across lost connections and a restarted hub,
 * each change once and none left out.
 */

import { address, channelOf, read, send } from "./api.js";
import { connect } from "./connection.js";
import { parse } from "./notification.js";

const FIRST_MS = 500;
const LONGEST_MS = 15_000;
const REFUSALS = 2; // one alone may be of a hub that was restarted meanwhile
const NOT_KEPT = new Set([400, 410, 4400, 4410]); // the hub no longer knows the cursor: begin anew

/** How long to wait before the next attempt; `chance` is from 0 to 1. */
export const delay = (failures, chance) =>
  Math.min(LONGEST_MS, FIRST_MS * 2 ** failures) * (0.5 + chance / 2);

export const PAST = 50; // changes that are shown of what was before

/** Some changes of a set, `from` a position or `until` one. */
export async function history(set, asked) {
  const query = new URLSearchParams({ ...asked, limit: PAST });
  return parse(await read(address(`${encodeURIComponent(set)}/changelist.xml?${query}`)));
}

export class Following {
  #end = () => {};
  #timer = 0;
  #failures = 0;
  #refusals = 0; // of a WebSocket by a hub that answers, one after another
  #isOver = false;
  #isCut = false;

  /** `heard` has `past(changes)`, `notification(parsed)`, `state(text, isBad)` and `gap(after, from)`. */
  constructor(set, { isPrivate, heard }) {
    this.set = set;
    this.isPrivate = isPrivate;
    this.cursor = null; // everything up to it has been handed on
    this.hasStopped = false; // trying again would end in the same way
    this.heard = heard;
    this.#go();
  }

  /** A header, and so a token, goes with a stream only; a browser opens only six of these. */
  get #transport() {
    return this.isPrivate || this.#refusals >= REFUSALS ? "stream" : "websocket";
  }

  stop() {
    this.#isOver = true;
    clearTimeout(this.#timer);
    this.#end();
  }

  /** End the connection, until it is joined again where it was. */
  cut() {
    this.#isCut = true;
    clearTimeout(this.#timer);
    this.#end();
    this.heard.state("cut by you", true);
  }

  join() {
    this.#isCut = false;
    this.#go();
  }

  async #go() {
    try {
      if (this.cursor === null) await this.#begin();
    } catch (error) {
      this.#ended({ reason: error.message, isFinal: [401, 403, 404].includes(error.status) });
      return;
    }
    if (this.#isOver || this.#isCut) return;
    this.#end = connect(this.#transport, channelOf(this.set), this.cursor, {
      opened: () => this.#opened(),
      frame: (text) => this.#frame(text),
      ended: (how) => this.#ended(how),
    });
  }

  /** The position to go on from, and the last changes before it, if they are kept. */
  async #begin() {
    const answer = await send("GET", channelOf(this.set)); // not HEAD: an error has its reason in the body
    answer.body?.cancel();
    const head = answer.headers.get("rsnotify-from");
    let changes = [];
    try {
      ({ changes } = await history(this.set, { until: head }));
    } catch (error) {
      if (![400, 410].includes(error.status)) throw error;
    }
    if (this.#isOver) return;
    this.cursor = head;
    this.heard.past(changes);
  }

  #opened() {
    if (this.#isOver) return;
    this.#failures = 0;
    this.heard.state("live", false);
  }

  #frame(text) {
    const notification = parse(text);
    if (this.#isOver || !(notification.until > this.cursor)) return;
    if (notification.from !== this.cursor) this.heard.gap(this.cursor, notification.from);
    this.cursor = notification.until;
    this.heard.notification(notification);
  }

  #ended({ code, reason, isFinal, isRefused }) {
    if (this.#isOver || this.#isCut) return;
    this.#refusals = isRefused ? this.#refusals + 1 : 0; // the settings or a proxy may allow none
    if (NOT_KEPT.has(code)) {
      this.heard.gap(this.cursor, null);
      this.cursor = null;
    } else if (isFinal) {
      this.hasStopped = true;
      this.heard.state(`stopped: ${reason}`, true);
      return;
    }
    const wait = delay(this.#failures, Math.random());
    this.#failures += 1;
    this.heard.state(`connection lost${reason ? `: ${reason}` : ""}; trying again`, true);
    this.#timer = setTimeout(() => this.#go(), wait);
  }
}
