// A channel by long polls: the Durable Stream that a hub has beside it, one request after another.
//
// A question is written as the official clients of that protocol write it, so that caches join the
// questions of all who have read equally far. Each request has the newest token.

import { Rejected, TryAgain } from "./errors.js";
import { positionOf } from "./position.js";
import { delaySeconds, sleep } from "./retry.js";
import { httpTwin, textOf } from "./web.js";

export const POLL_ANSWER_SECONDS = 45; // a hub answers after 25
export const SOON_SECONDS = 10; // where it need not wait
const HURRIED = 3; // answers that bring nothing and come at once, one after another
const HURRIED_SECONDS = 1;
const OF_CHANNELS = ["from", "since", "format"]; // what the address of a stream does not have
const CHANNEL = /^(.*)\/channels\/([^/]+)\/(change|framework)_notification_channel$/;

/** `{url, begin}` of the stream beside a channel at such an address as hubs have. */
export function streamBeside(url, cursor) {
  const address = new URL(httpTwin(url));
  const [, base, set, kind] = CHANNEL.exec(address.pathname) ?? [];
  if (set === undefined) {
    throw new Rejected(
      `${url} cannot be read by long polls, which only a hub of rsnotify has: leave transport out`,
    );
  }
  const query = address.searchParams;
  const begin = cursor ?? positionOf(query.get("from") ?? query.get("since"));
  for (const name of OF_CHANNELS) query.delete(name);
  address.pathname = `${base}/streams/${set}${kind === "framework" ? "/framework" : ""}`;
  return { url: address.href, begin };
}

/** The address with these parameters, in the one way that caches share. */
export function question(url, asked) {
  const address = new URL(url);
  for (const [name, value] of Object.entries(asked)) address.searchParams.set(name, value);
  const pairs = [...address.searchParams].sort(
    ([name, value], [other, its]) => compare(name, other) || compare(value, its),
  );
  address.search = new URLSearchParams(pairs).toString();
  return address.href;
}

const compare = (one, other) => (one < other ? -1 : Number(one > other));

/** What `openChannel` gives; `refusal` makes the error that an answer stands for. */
export async function openPolls(web, url, cursor, refusal) {
  const polls = new Polls(web, streamBeside(url, cursor), refusal);
  const begins = await polls.begin();
  return { transport: "long-poll", begins, payloads: polls.payloads(), close: polls.close };
}

class Polls {
  #web;
  #url;
  #refusal;
  #offset;
  #cursor;
  #first;
  #leaving = new AbortController();
  #signal;

  constructor(web, { url, begin }, refusal) {
    this.#web = web;
    this.#url = url;
    this.#offset = begin;
    this.#refusal = refusal;
    const own = this.#leaving.signal;
    this.#signal = web.signal ? AbortSignal.any([web.signal, own]) : own;
  }

  close = () => this.#leaving.abort();

  /** Where the stream stands, from an answer that is not waited for. */
  async begin() {
    const asked = this.#offset;
    this.#first = await this.#next(false);
    return this.#first ? asked : this.#offset;
  }

  /** What follows, as it comes; it ends with an error only. */
  async *payloads() {
    try {
      if (this.#first) yield this.#first;
      for (let hurried = 0; ;) {
        const began = performance.now();
        const found = await this.#patiently();
        if (found) yield found;
        const isHurried = !found && performance.now() - began < HURRIED_SECONDS * 1000;
        hurried = isHurried ? hurried + 1 : 0;
        if (hurried < HURRIED) continue;
        await sleep(delaySeconds(hurried - HURRIED, Math.random()), this.#signal);
      }
    } finally {
      this.close();
    }
  }

  /** An answer that does not come in time is asked for by a request that does not wait. */
  async #patiently() {
    try {
      return await this.#next(true);
    } catch (error) {
      const isLate = error instanceof TryAgain && error.status === undefined;
      if (!isLate || this.#signal.aborted) throw error;
      return this.#next(false);
    }
  }

  /** Whether a wait was ended because its token has, and there is another one. */
  async #hasAnotherToken(answer) {
    const shown = answer.status === 401 ? this.#web.shownFor(answer) : undefined;
    return shown !== undefined && this.#web.token.hasAnother(shown, this.#signal);
  }

  async #next(waits) {
    const after = this.#offset;
    const asked = { offset: after ?? "now" };
    if (waits) asked.live = "long-poll";
    if (waits && this.#cursor) asked.cursor = this.#cursor;
    const answer = await this.#web.ask(question(this.#url, asked), {
      signal: this.#signal,
      seconds: waits ? POLL_ANSWER_SECONDS : SOON_SECONDS,
      cache: waits ? "default" : undefined,
    });
    if (waits && (await this.#hasAnotherToken(answer))) return undefined;
    const until = positionOf(answer.headers.get("Stream-Next-Offset"));
    if (![200, 204].includes(answer.status) || until === undefined) {
      throw await this.#refusal(this.#url, answer);
    }
    const messages = answer.status === 204 ? "[]" : await textOf(answer);
    this.#offset = until;
    this.#cursor = answer.headers.get("Stream-Cursor");
    if (after === undefined || until === after) return undefined;
    if (until > after) return { messages, after, until };
    if (waits) throw new TryAgain(`the stream ends at ${until} now, and at ${after} before`);
    return undefined;
  }
}
