// HTTP as a Destination speaks it: bounded, with clear words for what failed.
//
// The token is shown to the origin that it is for, and to no other.

import { Rejected, TryAgain } from "./errors.js";
import { HeldToken } from "./token.js";

export const PAGE_CHARS = 2 * 1024 * 1024;
export const PAGE_SECONDS = 60; // until it has come
export const ANSWER_SECONDS = 20; // until an answer begins
export const SILENCE_SECONDS = 45; // until more of it comes; a hub says something every 25 s
export const RETRY_AFTER_SECONDS = 3_600;
const UNAUTHORIZED = 401;
const AGAIN = [408, 425, 429, 500, 502, 503, 504, 507]; // 507: a hub that is full
const IN_SUBPROTOCOL = /^[\w!#$%&'*+.^`|~-]+$/; // what RFC 9110 calls a token
const CHOSEN = "rsnotify.xml"; // the server must choose one, and never the one with the token
const XML_FIRST = "application/xml, text/xml;q=0.9, text/html;q=0.5, */*;q=0.1";
const MENDS = {
  304: "the answer was 304, unchanged, though nobody asked for that: look at its cache",
  401: "a token is needed: give one that may read it",
  403: "it may not be read: give a token that may",
  404: "there is nothing at this address: look whether it is right",
  410: "it is there no longer",
};

/** The http address of a channel's ws address. */
export function httpTwin(url) {
  return url.replace(/^ws(s?:)/, "http$1");
}

export function isSocket(url) {
  return /^wss?:\/\//.test(url);
}

/** An address that can be fetched, or that of its socket. */
export function checkedUrl(url) {
  if (!URL.canParse(url) || !/^(https?|wss?):\/\//.test(url)) {
    throw new Rejected(`${url} is no address that can be fetched: give one of http:// or https://`);
  }
  const { username, password, host } = new URL(url);
  if (!username && !password) return url;
  throw new Rejected(
    `the address of ${host} has a user or a password: leave them out, give a token`,
  );
}

/** The address with one parameter of its query set. */
export function withQuery(url, name, value) {
  const parsed = new URL(checkedUrl(url));
  parsed.searchParams.set(name, value);
  return parsed.href.replaceAll("%3A", ":");
}

/** Seconds, whether a number or a date was sent; an hour at most. */
export function retryAfter(text, now = Date.now()) {
  const seconds = /^\d+$/.test(text?.trim() ?? "") ? Number(text) : (Date.parse(text) - now) / 1000;
  return Math.min(Math.max(0, seconds || 0), RETRY_AFTER_SECONDS);
}

/** An address as it may be told: without a token. */
export function withoutToken(url) {
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  if (!parsed?.searchParams.has("access_token")) return url;
  parsed.searchParams.delete("access_token");
  return parsed.href.replaceAll("%3A", ":");
}

export class Web {
  #origin;
  #fetch;
  #shown = new WeakMap(); // the token with which an answer was asked for

  constructor({ token, url, signal, fetch = globalThis.fetch }) {
    this.token = token ? new HeldToken(token) : undefined;
    this.signal = signal;
    this.#origin = new URL(httpTwin(checkedUrl(url))).origin;
    this.#fetch = fetch.bind(globalThis);
  }

  /** Whether the token is shown there. */
  isShown(url) {
    return this.token !== undefined && new URL(httpTwin(url)).origin === this.#origin;
  }

  /** The token with which this was asked for, or opened; undefined if none was shown. */
  shownFor(answer) {
    return this.#shown.get(answer);
  }

  /** A WebSocket there, with the token in a subprotocol; undefined if that cannot carry it. */
  async socket(WebSocket, url) {
    if (!this.isShown(url)) return new WebSocket(url);
    const secret = await this.token.shown(this.signal);
    if (!IN_SUBPROTOCOL.test(secret)) return undefined;
    const socket = new WebSocket(url, [CHOSEN, `rsnotify.token.${secret}`]);
    this.#shown.set(socket, secret);
    return socket;
  }

  /** Whether a page asks another origin: it may send few headers, and read few answers. */
  isForeign(url) {
    const isPage = "document" in globalThis || "importScripts" in globalThis; // or a page's worker
    return isPage && new URL(url).origin !== globalThis.location.origin;
  }

  /** One answer of any status, its body still to come. */
  async ask(url, options = {}) {
    const answer = await this.#asked(url, options);
    const shown = this.shownFor(answer);
    if (answer.status !== UNAUTHORIZED || shown === undefined) return answer;
    if (!(await this.token.hasAnother(shown, options.signal ?? this.signal))) return answer;
    answer.body?.cancel().catch(() => {});
    return this.#asked(url, options);
  }

  async #asked(url, options) {
    const { headers = {}, signal = this.signal, method, body } = options;
    const { seconds = ANSWER_SECONDS, cache = "no-cache" } = options;
    const secret = this.isShown(checkedUrl(url)) ? await this.token.shown(signal) : undefined;
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(), seconds * 1000);
    const signals = [late.signal, signal].filter(Boolean);
    try {
      const answer = await this.#fetch(url, {
        method,
        body,
        headers: secret === undefined ? headers : { ...headers, Authorization: `Bearer ${secret}` },
        signal: AbortSignal.any(signals),
        cache,
        credentials: "same-origin",
      });
      if (secret !== undefined) this.#shown.set(answer, secret);
      return answer;
    } catch (error) {
      throw unreachable(url, error);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Something fetched whole: `{url, status, headers, text}`, its text up to a cap. */
  async page(url, accept = XML_FIRST) {
    const answer = await this.ask(url, { headers: { Accept: accept } });
    if (AGAIN.includes(answer.status)) throw refused(url, answer);
    const { status, headers } = answer;
    return { url: withoutToken(answer.url) || url, status, headers, text: await textOf(answer) };
  }
}

/** A body as text, up to a cap in characters and in seconds. */
export async function textOf(answer, seconds = PAGE_SECONDS) {
  const end = performance.now() + seconds * 1000;
  let text = "";
  for await (const piece of decoded(pieces(answer, Math.min(seconds, SILENCE_SECONDS)))) {
    text += piece;
    if (text.length > PAGE_CHARS || performance.now() > end) break;
  }
  return text;
}

function unreachable(url, error) {
  const cause = error.cause?.code ?? error.cause?.message ?? error.message;
  return new TryAgain(`${url} cannot be reached: ${cause}`);
}

/** What an answer means that brings nothing to read; its body is let go. */
export function refused(url, { status, headers, body }, detail, mayPass = false) {
  body?.cancel().catch(() => {}); // it may have been read
  if (AGAIN.includes(status)) {
    const seconds = retryAfter(headers.get("Retry-After"));
    return new TryAgain(`${url} cannot be served now (${detail ?? status})`, {
      retryAfter: seconds,
      status,
    });
  }
  const words = detail ?? MENDS[status] ?? `the answer was ${status}`;
  return new Rejected(`${url}: ${words}`, { status, isOfHub: detail !== undefined, mayPass });
}

/** What a server says of its refusal in a problem document (RFC 9457). */
export function detailIn(text) {
  try {
    const { detail } = JSON.parse(text);
    return typeof detail === "string" ? detail : undefined;
  } catch {
    return undefined;
  }
}

/** The pieces of a body; one that says nothing for too long is given up, as one that breaks is. */
export async function* pieces(answer, seconds = SILENCE_SECONDS, broken = unreachable) {
  const reader = answer.body?.getReader();
  const url = withoutToken(answer.url);
  if (!reader) return;
  try {
    for (;;) {
      const { done, value } = await within(seconds, reader.read(), url);
      if (done) return;
      yield value;
    }
  } catch (error) {
    throw error instanceof TryAgain ? error : broken(url, error);
  } finally {
    reader.cancel().catch(() => {});
  }
}

async function within(seconds, promise, url) {
  let timer;
  const late = new Promise((_, reject) => {
    const error = new TryAgain(`${url} said nothing for ${seconds} s`);
    timer = setTimeout(reject, seconds * 1000, error);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Bytes as text. */
export async function* decoded(parts, options = {}) {
  const decoder = new TextDecoder("utf-8", options);
  try {
    for await (const piece of parts) yield decoder.decode(piece, { stream: true });
    yield decoder.decode();
  } catch (error) {
    if (error instanceof TypeError) throw new Rejected("the document is not UTF-8");
    throw error;
  }
}
