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
const NOT_KEPT = [400, 410, 4400, 4410]; // the hub no longer knows the cursor: begin anew

/** How long to wait before the next attempt; `chance` is from 0 to 1. */
export const delay = (failures, chance) =>
  Math.min(LONGEST_MS, FIRST_MS * 2 ** failures) * (0.5 + chance / 2);

export const PAST = 50; // changes that are shown of what was before

/** Some changes of a set, `from` a position or `until` one. */
export const history = async (set, asked) => parse(await read(address(
  `${encodeURIComponent(set)}/changelist.xml?${new URLSearchParams({ ...asked, limit: PAST })}`)));

export class Following {
  #end = () => {};
  #timer = 0;
  #failures = 0;
  #refusals = 0; // of a WebSocket by a hub that answers, one after another
  #isOver = false;

  /** `heard` has `past(changes)`, `notification(parsed)`, `state(text, isBad)` and `gap(after, from)`. */
  constructor({ name, private: isPrivate }, heard) {
    this.set = name;
    this.isPrivate = isPrivate;
    this.cursor = null; // everything up to it has been handed on
    this.isLost = false; // nothing comes now
    this.hasStopped = false; // trying again would end in the same way
    this.heard = heard;
    this.join();
  }

  /** End the connection, until it is joined again where it was. */
  stop() {
    this.#isOver = true;
    clearTimeout(this.#timer);
    this.#end();
  }

  cut() {
    this.stop();
    this.#is("cut by you", true);
  }

  join() {
    this.#isOver = false;
    this.#go();
  }

  #is(text, isLost) {
    this.isLost = isLost;
    this.heard.state(text, isLost);
  }

  async #go() {
    try {
      if (this.cursor === null) await this.#begin();
    } catch (error) {
      this.#ended({ reason: error.message, isFinal: [401, 403, 404].includes(error.status) });
      return;
    }
    if (this.#isOver) return;
    // A header, and so a token, goes with a stream only; a browser opens only six of these.
    const transport = this.isPrivate || this.#refusals >= REFUSALS ? "stream" : "websocket";
    this.#end = connect(transport, channelOf(this.set), this.cursor, {
      opened: () => {
        this.#failures = 0;
        this.#is("live", false);
      },
      frame: (text) => this.#frame(text),
      ended: (how) => this.#ended(how),
    });
  }

  /** The position to go on from, and the last changes before it, if they are kept. */
  async #begin() {
    const answer = await send("GET", channelOf(this.set)); // not HEAD: an error has its reason in the body
    answer.body?.cancel();
    const head = answer.headers.get("rsnotify-from");
    const { changes } = await history(this.set, { until: head }).catch((error) => {
      if (NOT_KEPT.includes(error.status)) return { changes: [] };
      throw error;
    });
    if (this.#isOver) return;
    this.cursor = head;
    this.heard.past(changes);
  }

  #frame(text) {
    const notification = parse(text);
    if (!(notification.until > this.cursor)) return;
    if (notification.from !== this.cursor) this.heard.gap(this.cursor, notification.from);
    this.cursor = notification.until;
    this.heard.notification(notification);
  }

  #ended({ code, reason, isFinal, isRefused }) {
    if (this.#isOver) return;
    this.#refusals = isRefused ? this.#refusals + 1 : 0; // the settings or a proxy may allow none
    if (NOT_KEPT.includes(code)) {
      this.heard.gap(this.cursor, null);
      this.cursor = null;
    } else if (isFinal) {
      this.hasStopped = true;
      this.#is(`stopped: ${reason}`, true);
      return;
    }
    this.#timer = setTimeout(() => this.#go(), delay(this.#failures, Math.random()));
    this.#failures += 1;
    this.#is(`connection lost${reason ? `: ${reason}` : ""}; trying again`, true);
  }
}
