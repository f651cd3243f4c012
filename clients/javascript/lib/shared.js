// Several tabs of one site share one connection.
//
// One tab leads: it holds a Web Lock, follows the Source and tells the others, and itself, what
// comes. Each tab has a timeline of its own; a tab that misses something, or begins further back,
// reads it by a connection of its own until it stands where the others do. When the leader's tab is
// gone the browser gives the lock to the next, which goes on from where it stands.

import { NotJoined } from "./errors.js";
import { Follower } from "./follower.js";
import { positionOf } from "./position.js";
import { Timeline } from "./timeline.js";

export const MAILBOX_CHARS = 16 * 1024 * 1024;

/** What `Follower` gives, by one connection of all tabs; where they cannot talk, one for each. */
export async function* sharedNotifications(url, options) {
  if (!globalThis.navigator?.locks || !globalThis.BroadcastChannel) {
    yield* new Follower(url, options);
    return;
  }
  const tab = new Tab(url, options);
  try {
    yield* tab.received();
  } finally {
    tab.leave();
  }
}

class Tab {
  #url;
  #options;
  #timeline;
  #mailbox = new Mailbox(MAILBOX_CHARS);
  #others;
  #leaving = new AbortController();
  #standing; // the newest state of the connection, if this tab leads

  constructor(url, options) {
    this.#url = String(url);
    this.#options = options;
    this.#timeline = new Timeline(positionOf(options.from));
    new Follower(url, options); // says what is wrong with them
    this.#others = new BroadcastChannel(`rsnotify ${this.#url}`);
    this.#others.onmessage = ({ data }) => this.#heard(data);
    options.signal?.addEventListener("abort", this.leave);
    this.#others.postMessage({ kind: "hello" });
    this.#lead();
  }

  async *received() {
    for (let item; (item = await this.#mailbox.next()) !== undefined;) {
      if (this.#leaving.signal.aborted) return;
      if (item.error) throw item.error;
      if (item.gap) this.#skip(item.gap);
      else if (item.received) yield* this.#joined(item.received);
      else yield* this.#standAt(item.state);
    }
  }

  leave = () => {
    this.#options.signal?.removeEventListener("abort", this.leave);
    this.#leaving.abort();
    this.#others.close();
    this.#mailbox.put(undefined);
  };

  // The tab that leads ----------------------------------------------------------------------------

  async #lead() {
    const signal = this.#leaving.signal;
    try {
      const lead = () => this.#follow(signal);
      await navigator.locks.request(`rsnotify ${this.#url}`, { signal }, lead);
    } catch (error) {
      if (!signal.aborted) this.#mailbox.put({ error });
    }
  }

  async #follow(signal) {
    const onGap = this.#options.onGap && ((gap) => this.#mailbox.put({ gap }));
    const onState = (state) => {
      this.#standing = tellable(state);
      this.#tell({ kind: "state", state: this.#standing });
    };
    const place = { from: this.#timeline.cursor, signal, onGap, onState };
    for await (const received of new Follower(this.#url, { ...this.#options, ...place })) {
      this.#standing = { ...this.#standing, cursor: received.until };
      this.#tell({ kind: "received", received });
    }
  }

  #tell(message) {
    if (this.#leaving.signal.aborted) return;
    this.#others.postMessage(message);
    this.#heard(message);
  }

  // Every tab -------------------------------------------------------------------------------------

  #heard({ kind, received, state }) {
    if (kind === "hello" && this.#standing) this.#tell({ kind: "state", state: this.#standing });
    if (kind === "received") this.#mailbox.put({ received }, sizeOf(received));
    if (kind === "state") this.#mailbox.put({ state });
  }

  async *#standAt(state) {
    if (state.state === "live" && state.cursor !== undefined) {
      if (this.#timeline.cursor === undefined) this.#timeline.begin(state.cursor);
      if (this.#timeline.cursor < state.cursor) yield* this.#caughtUp(state.cursor);
    }
    this.#options.onState?.({ ...state, cursor: this.#timeline.cursor });
  }

  async *#joined(received) {
    try {
      const found = this.#timeline.joined(received);
      if (found) yield found;
    } catch (error) {
      if (!(error instanceof NotJoined)) throw error;
      yield* this.#caughtUp(received.until);
    }
  }

  /** By a connection of this tab alone, until it stands there. */
  async *#caughtUp(until) {
    const enough = new AbortController();
    const signal = AbortSignal.any([this.#leaving.signal, enough.signal]);
    const onGap = this.#options.onGap && ((gap) => this.#skip(gap) >= until && enough.abort());
    const onState = ({ state, cursor }) => {
      if (state !== "live" || !(cursor >= until)) return;
      this.#timeline.begin(cursor); // nothing lay between
      enough.abort();
    };
    const options = { ...this.#options, from: this.#timeline.cursor, signal, onGap, onState };
    for await (const received of new Follower(this.#url, options)) {
      const found = this.#timeline.newIn(received);
      if (found) yield found;
      if (this.#timeline.cursor >= until) return;
    }
  }

  /** What lies between cannot be had; where this tab then stands. */
  #skip(gap) {
    this.#timeline.forget();
    this.#timeline.begin(gap.until);
    this.#options.onGap(gap);
    return gap.until;
  }
}

/** A state as other tabs can be told it. */
function tellable({ error, ...state }) {
  return error ? { ...state, error: { name: error.name, message: error.message } } : state;
}

function sizeOf({ payload, timed }) {
  return 1 + payload.length + 200 * timed.length;
}

/** What waits for this tab's reader. Too much is dropped: what comes next then does not join. */
export class Mailbox {
  #items = [];
  #size = 0;
  #bound;
  #wake = () => {};

  constructor(bound) {
    this.#bound = bound;
  }

  put(item, size = 0) {
    if (this.#size + size > this.#bound) {
      this.#items = this.#items.filter(([, each]) => each === 0);
      this.#size = 0;
    }
    this.#items.push([item, size]);
    this.#size += size;
    this.#wake();
  }

  async next() {
    while (!this.#items.length) await new Promise((resolve) => (this.#wake = resolve));
    const [item, size] = this.#items.shift();
    this.#size -= size;
    return item;
  }
}
