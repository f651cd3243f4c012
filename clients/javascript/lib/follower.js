// Follow a Source: every notification once and in order, across lost connections and lost history.
//
// One loop for everything: a channel, or Change Lists that are polled; where the channel does not
// reach back, Change Lists do. The place comes from what was told, never from a clock.

import { ChangeLists } from "./changelists.js";
import { discover, socketOfTopic } from "./discovery.js";
import { changeOf } from "./document.js";
import { HistoryGone, NotJoined, Rejected, Renewed, SetBack, TooOld, TryAgain } from "./errors.js";
import { readNotification } from "./notification.js";
import { checkOptions, FOLLOW_OPTIONS } from "./options.js";
import { positionOf } from "./position.js";
import { delaySeconds, LONGEST_SECONDS, sleep } from "./retry.js";
import { Timeline } from "./timeline.js";
import { openTransport, TRANSPORTS } from "./transports.js";
import { Wanted } from "./wanted.js";
import { checkedUrl, httpTwin, isSocket, Web } from "./web.js";

export const POLL_SECONDS = 60;
export const OPTION_SECONDS = 1_000_000; // a platform's timers know 2,147,483
export const CUTS = 2; // channels in a row that bring nothing, then long polls are tried first
export const LIST_ATTEMPTS = 3; // then Change Lists count as unreadable: another origin forbids it

const NO_LIST = "there is no Change List to catch up from";

export class Follower {
  #url;
  #options;
  #web;
  #timeline;
  #wanted;
  #source;
  #lists;
  #attempt = 0;
  #cuts = 0;
  #hasRead = false; // its channel, once
  #beginsWithState;
  #stateAt; // the moment of the list of which so many resources were handed on
  #stated = 0;
  #failedLists = 0;
  #notJoinedAt;
  #tooOldAt;
  #mustCatchUp = false;
  #beganEmpty = false; // then all that will be listed comes after us
  #gap;
  #isPolling = false;
  #liveSince = Infinity;

  constructor(url, options = {}, whenSetBack = undefined) {
    this.#url = checked(String(url), options);
    this.#options = { ...options, WebSocket: socketOf(options) };
    this.#web = new Web({ ...options, url: this.#url });
    this.#timeline = new Timeline(positionOf(options.position), whenSetBack);
    this.#beginsWithState = options.state && this.cursor === undefined;
    this.#wanted = new Wanted(options);
  }

  /** Up to here everything was handed on. */
  get cursor() {
    return this.#timeline.cursor;
  }

  async *[Symbol.asyncIterator]() {
    while (!this.#isAborted) {
      try {
        for await (const received of this.#round()) {
          if (this.#isAborted) return;
          this.#attempt = 0;
          yield this.#wanted.leftOf(received);
        }
      } catch (error) {
        if (this.#isAborted) return;
        await this.#mend(error);
      }
    }
  }

  get #isAborted() {
    return this.#options.signal?.aborted ?? false;
  }

  /** Until something fails: catch up if need be, then live, or one poll and a pause. */
  async *#round() {
    const address = await this.#address();
    if (this.#beginsWithState) yield* this.#state();
    if (this.#mustCatchUp || address === undefined) yield* this.#caughtUp();
    if (address === undefined) return this.#waitForNextPoll();
    const channel = await this.#opened(address);
    try {
      yield* this.#live(channel);
    } finally {
      channel.close();
    }
  }

  /**
   * All resources as they are; then the cursor is the earliest moment that their list states. Where
   * it breaks off it is read again, and what was handed on of the same list is passed over.
   */
  async *#state() {
    const { url, resourcelist } = await this.#discovered();
    if (resourcelist === undefined) {
      throw new Rejected(`${url} offers no Resource List: follow it without the state`);
    }
    let [at, count] = [undefined, 0];
    for await (const { entries, moment } of new ChangeLists(this.#web, resourcelist).resources()) {
      if (at === undefined && moment === undefined) {
        throw new Rejected(
          `${resourcelist} does not say of when it is (at): follow without the state`,
        );
      }
      if (at === undefined && moment !== this.#stateAt) {
        this.#stateAt = moment;
        this.#stated = 0;
      }
      at = at === undefined || moment < at ? moment : at;
      const left = entries.slice(Math.max(0, this.#stated - count));
      count += entries.length;
      this.#stated = Math.max(this.#stated, count);
      if (left.length) yield stateOf(left);
    }
    this.#timeline.begin(at);
    this.#beginsWithState = false;
  }

  /** The channel; that of its hub for a topic at the Source's own address, which is none. */
  async #opened(address) {
    const isBehind = this.#lists && (() => this.#isBehind());
    const options = { ...this.#options, isBehind, isCut: this.#cuts >= CUTS };
    const open = (url) =>
      openTransport(this.#web, this.#wanted.asked(url), () => this.cursor, options);
    try {
      return await open(address);
    } catch (error) {
      if (!(error instanceof Rejected) || address !== this.#source?.topic) throw error;
      const socket = await socketOfTopic(this.#web, address).catch(ignoreTrouble);
      if (socket === undefined) throw error;
      this.#source.socket = socket;
      return open(socket);
    }
  }

  #waitForNextPoll() {
    if (!this.#isPolling) this.#say("live", { transport: "polling" });
    this.#isPolling = true;
    this.#attempt = 0;
    const seconds = this.#options.pollSeconds ?? POLL_SECONDS;
    return sleep(seconds * (0.9 + 0.2 * Math.random()), this.#options.signal);
  }

  async *#live({ begins, payloads, transport }) {
    if (begins !== undefined) this.#timeline.opened(begins);
    this.#tellGap();
    if (begins === undefined && this.#lists) yield* this.#bridged();
    this.#say("live", { transport });
    this.#hasRead = true;
    this.#liveSince = performance.now();
    for await (const payload of payloads) {
      const received = this.#timeline.joined(this.#read(payload));
      this.#notJoinedAt = undefined;
      this.#attempt = 0;
      if (received) yield received;
    }
  }

  /** The peer did not say where it begins: what came meanwhile stands in its Change Lists. */
  async *#bridged() {
    if (this.#beginsNow) return this.#standAtTheEnd().catch(ignoreTrouble);
    yield* this.#caughtUp(true);
    this.#tellGap();
  }

  /** A notification that cannot be read is lost; what it told is asked for again. */
  #read(payload) {
    try {
      return readNotification(payload);
    } catch (error) {
      if (!(error instanceof Rejected)) throw error;
      throw new NotJoined(`a notification after ${this.cursor} cannot be read: ${error.message}`);
    }
  }

  // Change Lists ----------------------------------------------------------------------------------

  async *#caughtUp(isGap = this.#mustCatchUp) {
    if (this.#mustCatchUp) this.#say("catching-up");
    try {
      if (!this.#lists) throw new Rejected(NO_LIST);
      yield* this.#fromLists();
    } catch (error) {
      if (!(error instanceof HistoryGone) && !(isGap && this.#isFinal(error))) throw error;
      this.#giveUp(error.reason ?? error.message);
    }
    this.#failedLists = 0;
    this.#mustCatchUp = false;
  }

  #isFinal(error) {
    if (error instanceof TryAgain) this.#failedLists += 1;
    return error instanceof Rejected || this.#failedLists >= LIST_ATTEMPTS;
  }

  async *#fromLists() {
    if (this.#beginsNow) return this.#standAtTheEnd();
    try {
      for await (const received of this.#lists.after(this.cursor)) {
        const found = this.#timeline.newIn(received);
        if (found?.timed.length) yield found;
      }
    } catch (error) {
      if (!(error instanceof SetBack)) throw error;
      this.#beganEmpty = error.end === undefined;
      this.#timeline.goBack(error.end, error.message);
    }
  }

  get #beginsNow() {
    return this.cursor === undefined && !this.#beganEmpty;
  }

  /** Nothing of what is listed now is handed on, only what comes after it. */
  async #standAtTheEnd() {
    const end = await this.#lists.end();
    this.#beganEmpty = end === undefined;
    if (end) this.#timeline.newIn(end);
    this.#tellGap();
  }

  /** Whether something is listed that has not come. Lists that cannot be read do not say so. */
  async #isBehind() {
    if (this.#beginsNow) return false;
    const hasNew = ({ timed }) =>
      timed.some(({ position }) => this.cursor === undefined || position > this.cursor);
    try {
      for await (const received of this.#lists.after(this.cursor)) {
        if (hasNew(received)) return true;
      }
    } catch (error) {
      if (error instanceof SetBack) return true; // its channel says where it stands now
      if (!(error instanceof HistoryGone)) return false;
      const end = await this.#lists.end().catch(ignoreTrouble);
      return end !== undefined && hasNew(end);
    }
    return false;
  }

  // Where -----------------------------------------------------------------------------------------

  /** The channel's address; undefined if there is none, then Change Lists are polled. */
  async #address() {
    if (isSocket(this.#url)) {
      if (!this.#isFramework) await this.#discovered().catch(ignoreTrouble);
      return this.#url;
    }
    if (this.#isTopic && !(await this.#isFound())) return this.#url;
    const { socket, topic, changelist } = await this.#discovered();
    if (socket === undefined && topic === undefined && changelist === undefined) {
      throw new Rejected(`${this.#url} offers neither a channel nor a Change List to follow`);
    }
    if (this.#isTopic && httpTwin(socket ?? "") !== this.#url) return this.#url;
    return socket ?? topic;
  }

  /** A channel need not wait for what else there is, unless its Change Lists are needed. */
  async #isFound() {
    try {
      await this.#discovered();
      return true;
    } catch (error) {
      if (!(error instanceof TryAgain) || this.#mustCatchUp) throw error;
      return false;
    }
  }

  async #discovered() {
    if (this.#source === undefined) {
      this.#source = await discover(this.#web, this.#url);
      const { changelist, archive, socket } = this.#source;
      const asked = (url) => this.#wanted.askedOfHub(socket, url);
      if (changelist && !this.#isFramework)
        this.#lists = new ChangeLists(this.#web, changelist, archive, asked);
    }
    return this.#source;
  }

  /** Whether the caller named a channel by its http address. */
  get #isTopic() {
    return /\/(change|framework)_notification_channel(\?|$)/.test(this.#url);
  }

  get #isFramework() {
    return this.#url.includes("/framework_notification_channel");
  }

  // Trouble ---------------------------------------------------------------------------------------

  async #mend(error) {
    if (error instanceof Renewed) await this.#renew(error);
    else if (error instanceof NotJoined) await this.#askAgain(error);
    else if (error instanceof TooOld) await this.#fallBehind(error);
    else if (error instanceof TryAgain) {
      this.#noteCut(error);
      await this.#pause(error);
    } else if (error.mayPass && this.#hasRead) {
      await this.#pause(new TryAgain(`${error.message}, but the Source was read before`));
    } else throw error;
  }

  /** Long polls that fail are no better than the others, which are tried again first. */
  #noteCut({ isCut, status }) {
    if (isCut) this.#cuts += 1;
    else if (this.#cuts >= CUTS) this.#cuts = CUTS - 1;
    else if (status === undefined) this.#cuts = 0;
  }

  /** At once, and nobody is told; whoever is refused at once again asks seldom. */
  async #renew({ wasRefused }) {
    if (wasRefused) await sleep(delaySeconds(0, Math.random()), this.#options.signal);
  }

  /** The first time the channel is asked again from the cursor; then the lists are. */
  async #askAgain(error) {
    if (this.#notJoinedAt === this.cursor) this.#catchUp(error.message);
    this.#notJoinedAt = this.cursor;
    await this.#pause(error);
  }

  /** The lists are read at once; where they brought nothing on, after a pause. */
  async #fallBehind(error) {
    const isAgain = this.#tooOldAt === this.cursor;
    this.#tooOldAt = this.cursor;
    this.#catchUp(error.message);
    if (isAgain) await this.#pause(error);
  }

  #catchUp(reason) {
    const mayHaveLists = this.#isTopic && this.#source === undefined; // it could not be asked
    if (this.#lists || mayHaveLists) this.#mustCatchUp = true;
    else this.#giveUp(`${reason}; ${NO_LIST}`);
  }

  /** What followed the cursor cannot be had: go on from where the channel begins. */
  #giveUp(reason) {
    const from = this.cursor;
    if (!this.#options.onGap) throw new HistoryGone(from, reason);
    this.#gap ??= { from, reason };
    this.#beganEmpty = false;
    this.#timeline.forget();
  }

  #tellGap() {
    const gap = this.#gap;
    this.#gap = undefined;
    if (gap) this.#options.onGap({ ...gap, until: this.cursor });
  }

  async #pause(error) {
    if (performance.now() - this.#liveSince > LONGEST_SECONDS * 1000) this.#attempt = 0;
    this.#liveSince = Infinity;
    const seconds = delaySeconds(this.#attempt, Math.random(), error.retryAfter);
    this.#attempt += 1;
    this.#isPolling = false;
    this.#say("waiting", { error, seconds });
    await sleep(seconds, this.#options.signal);
  }

  #say(state, more = {}) {
    this.#options.onState?.({ state, position: this.cursor, ...more });
  }
}

function checked(url, { position, transport, WebSocket = globalThis.WebSocket, ...others }) {
  checkedUrl(url);
  checkOptions(others, FOLLOW_OPTIONS);
  checkSeconds("pollSeconds", others);
  checkSeconds("quietSeconds", others);
  if (others.state && others.shared) throw new Rejected("a state is not shared: leave shared out");
  if (position != null && positionOf(position) === undefined) {
    throw new Rejected(
      `position is ${position}: give a datetime such as 2026-11-20T21:34:00.123456Z`,
    );
  }
  if (transport !== undefined && !TRANSPORTS.includes(transport)) {
    throw new Rejected(`transport is ${transport}: it must be one of ${TRANSPORTS.join(", ")}`);
  }
  if (transport === "websocket" && !WebSocket) {
    throw new Rejected("there is no WebSocket here: give the option WebSocket, or transport sse");
  }
  if (/\/channels\/\w+_notification_channel(\?|$)/.test(url)) {
    throw new Rejected(
      `${url} is a channel of several sets: follow each of them at its own address`,
    );
  }
  return url;
}

/** Resources as they are, which stand at no position yet. */
function stateOf(entries) {
  const changes = entries.map((entry) => ({ ...changeOf(entry), change: "created", isState: true }));
  const timed = changes.map((change) => ({ position: undefined, change }));
  return { payload: "", from: undefined, until: undefined, timed, joins: false, isState: true };
}

function checkSeconds(name, { [name]: seconds = 1 }) {
  if (seconds > 0 && seconds <= OPTION_SECONDS) return;
  throw new Rejected(`${name} is ${seconds}: give seconds, above 0 and at most ${OPTION_SECONDS}`);
}

function socketOf({ transport, WebSocket = globalThis.WebSocket }) {
  return transport === "sse" ? undefined : WebSocket;
}

/** A channel can be followed even where nothing more is found of its Source. */
function ignoreTrouble(error) {
  if (!(error instanceof Rejected) && !(error instanceof TryAgain)) throw error;
}
