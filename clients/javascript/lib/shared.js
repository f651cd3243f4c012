// Several tabs of one site share one connection.
//
// One tab leads: it holds a Web Lock, follows the Source and tells the others, and itself, what
// comes, and after which position it came. Each tab has a timeline of its own; a tab that missed
// something, or begins further back, reads it by a connection of its own until it stands where the
// others do. When the leader's tab is gone the browser gives the lock to the next, which goes on
// from where it stands.

import { Follower } from "./follower.js";
import { later, positionOf } from "./position.js";
import { Timeline } from "./timeline.js";
import { Wanted } from "./wanted.js";

export const MAILBOX_CHARS = 16 * 1024 * 1024;

/** What `Follower` gives, by one connection of all tabs; where they cannot talk, one for each. */
export async function* sharedNotifications(url, options) {
  const alone = new Follower(url, options); // says what is wrong with them
  if (options.signal?.aborted) return;
  if (!globalThis.navigator?.locks || !globalThis.BroadcastChannel) {
    yield* alone;
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
  #name; // one for all tabs that want the same
  #options;
  #timeline;
  #mailbox = new Mailbox(MAILBOX_CHARS);
  #others;
  #leaving = new AbortController();
  #standing; // the newest state of the connection, if this tab leads
  #state; // the newest of which this tab heard
  #told; // what onState was told last

  constructor(url, options) {
    this.#url = String(url);
    this.#name = ["rsnotify", this.#url, new Wanted(options).key].join(" ").trim();
    this.#options = options;
    this.#timeline = new Timeline(positionOf(options.position));
    this.#others = new BroadcastChannel(this.#name);
    this.#others.onmessage = ({ data }) => this.#heard(data);
    options.signal?.addEventListener("abort", this.leave);
    this.#others.postMessage({ kind: "hello" });
    this.#lead();
  }

  async *received() {
    for (let item; (item = await this.#mailbox.next()) !== undefined;) {
      let { state } = item;
      if (this.#timeline.cursor < item.after) {
        yield* this.#caughtUp(item.after);
        state ??= this.#state; // the state of the shared connection again
      }
      if (this.#leaving.signal.aborted) return;
      if (item.error) throw item.error;
      if (item.problem) this.#goBack(item);
      const found = item.received && this.#timeline.newIn(item.received);
      if (found) yield found;
      if (item.gap) this.#skip(item.gap);
      if (state) this.#standAt(state);
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
      await navigator.locks.request(this.#name, { signal }, lead);
    } catch (error) {
      if (!signal.aborted) this.#mailbox.put({ error });
    }
  }

  async #follow(signal) {
    const from = this.#timeline.cursor;
    let after = from;
    const onGap = (gap) => {
      after = gap.until;
      this.#mailbox.put({ gap, after: gap.from }, 1);
    };
    const onState = (state) => {
      after = state.position;
      this.#standing = tellable(state);
      this.#tell({ kind: "state", state: this.#standing });
    };
    const whenSetBack = (to, problem) => {
      after = to;
      this.#tell({ kind: "set back", to, problem });
    };
    const place = { position: from, signal, onGap: this.#options.onGap && onGap, onState };
    const options = { ...this.#options, ...place };
    for await (const received of new Follower(this.#url, options, whenSetBack)) {
      this.#tell({ kind: "received", received, after });
      after = later(received.until, after);
      if (this.#standing) this.#standing = { ...this.#standing, position: after };
    }
  }

  #tell(message) {
    if (this.#leaving.signal.aborted) return;
    this.#others.postMessage(message);
    this.#heard(message);
  }

  // Every tab -------------------------------------------------------------------------------------

  #heard({ kind, received, after = received?.from, state, to, problem }) {
    if (kind === "hello" && this.#standing) this.#tell({ kind: "state", state: this.#standing });
    if (kind === "received") this.#mailbox.put({ received, after }, sizeOf(received));
    if (kind === "set back") this.#mailbox.put({ to, problem });
    if (kind !== "state") return;
    this.#mailbox.put({ state, after: state.state === "live" ? state.position : undefined });
  }

  /** The Source stands before what it has sent: so does this tab, unless it has not come so far. */
  #goBack({ to, problem }) {
    if (to === undefined || this.#timeline.cursor > to) this.#timeline.goBack(to, problem);
  }

  #standAt(state) {
    this.#state = state;
    if (state.state === "live") this.#timeline.begin(state.position);
    this.#say(state);
  }

  /** Once, though the leader says it again to every tab that is opened. */
  #say(state) {
    const told = JSON.stringify({ ...state, position: undefined });
    if (told !== this.#told) this.#options.onState?.({ ...state, position: this.#timeline.cursor });
    this.#told = told;
  }

  /** By a connection of this tab alone, until it has all up to there. */
  async *#caughtUp(until) {
    const enough = new AbortController();
    const signal = AbortSignal.any([this.#leaving.signal, enough.signal]);
    const onGap = this.#options.onGap && ((gap) => this.#skip(gap) >= until && enough.abort());
    const onState = (own) => {
      if (own.state !== "live") this.#say(tellable(own));
      else if (own.position >= until) {
        this.#timeline.begin(own.position); // nothing lay between
        enough.abort();
      }
    };
    const options = { ...this.#options, position: this.#timeline.cursor, signal, onGap, onState };
    const whenSetBack = (to, problem) => {
      this.#goBack({ to, problem });
      enough.abort(); // what the others stand at comes again
    };
    for await (const received of new Follower(this.#url, options, whenSetBack)) {
      const found = this.#timeline.newIn(received);
      if (found) yield found;
      const isOfChannel = received.payload || received.joins;
      if (received.until > until || (received.until === until && isOfChannel)) return;
    }
  }

  /** What lies between cannot be had; where this tab then stands. */
  #skip(gap) {
    if (this.#timeline.cursor >= gap.until) return gap.until;
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

/** What waits for this tab's reader. Too much is dropped: what comes next is then after a gap. */
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
