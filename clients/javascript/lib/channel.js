// One connection to a channel, by WebSocket or as an event stream; it gives payloads.
//
// An event stream is opened first in any case: its status says why a channel is refused, and its
// header where it begins. A WebSocket says neither to a program in JavaScript. Where one can be
// had it takes over; until it is open the stream stays, so nothing lies between the two.

import { Rejected, Renewed, TooOld, TryAgain } from "./errors.js";
import { readNotification } from "./notification.js";
import { positionOf } from "./position.js";
import { decoded, detailIn, httpTwin, isSocket, pieces, refused, textOf, withQuery } from "./web.js";

export const NOTIFICATION_CHARS = 16 * 1024 * 1024;
export const HANDSHAKE_SECONDS = 10;
export const AT_ONCE_SECONDS = 10; // a hub sends what follows a place
export const QUIET_SECONDS = 90; // then it is checked whether a WebSocket is dead
const NOT_CLOSED = 1006; // by the peer: the connection has just ended
const NOT_ALLOWED = 1008;
const REFUSED = [1008, 4400, 4404]; // another try would end the same
const TOO_OLD = 4410;
const PLACE = ["from", "since"]; // parameters of a channel's address
const EVENT_STREAM = "text/event-stream";

/**
 * `{transport, begins, payloads, close}`; `begins` is undefined where the peer does not say it.
 * `standing()` says up to where its reader has got. `isBehind()`, if given, says whether the Source
 * has newer changes. It is asked where the channel does not say where it begins.
 */
export async function openChannel(web, url, standing, options = {}) {
  const { WebSocket, quietSeconds, isBehind, transport } = options;
  const wantsSocket = isSocket(url) && WebSocket;
  const stream = await openStream(web, httpTwin(url), standing()).catch((error) => {
    if (!wantsSocket || error instanceof TooOld || web.signal?.aborted) throw error;
    return { error };
  });
  if (!wantsSocket) return renewable(web, stream);
  const from = standing() ?? stream.begins;
  const socket = await openSocket(web, WebSocket, resumed(url, from)).catch((error) => {
    stream.close?.();
    throw error; // of a token function
  });
  web.signal?.throwIfAborted();
  const saysMore = () => hasMore(web, withoutPlace(httpTwin(url)), standing() ?? from);
  const isDead = stream.begins === undefined ? isBehind : saysMore;
  if (socket && isDead) watch(socket, isDead, quietSeconds);
  if (socket) stream.close?.();
  else if (stream.error) throw stream.error;
  else if (transport === "websocket") {
    stream.close();
    throw new TryAgain(`no WebSocket can be opened at ${url}`);
  }
  if (!socket) return renewable(web, stream);
  return renewable(web, { ...socket, transport: "websocket", begins: stream.begins });
}

/** The channel; its payloads end with `Renewed` once there is another token. */
function renewable(web, channel) {
  if (channel.shown === undefined) return channel;
  return { ...channel, payloads: untilRenewed(web, channel) };
}

async function* untilRenewed(web, { payloads, close, shown }) {
  const stop = web.token.whenAnother(shown, () => close(new Renewed()));
  try {
    yield* payloads;
  } catch (error) {
    const isRefused = error.closeCode === NOT_ALLOWED;
    if (isRefused && (await web.token.hasAnother(shown, web.signal))) throw new Renewed(true);
    throw error;
  } finally {
    stop();
  }
}

function resumed(url, cursor) {
  return cursor === undefined ? url : withQuery(url, "from", cursor);
}

/** The channel's address, which may say itself where to begin, for whoever begins now. */
function withoutPlace(url) {
  const address = new URL(url);
  for (const name of PLACE) address.searchParams.delete(name);
  return address.href;
}

// Event streams -----------------------------------------------------------------------------------

export async function openStream(web, url, cursor) {
  const closing = new AbortController();
  const signal = web.signal ? AbortSignal.any([web.signal, closing.signal]) : closing.signal;
  const answer = await web.ask(resumed(url, cursor), { headers: { Accept: EVENT_STREAM }, signal });
  let why;
  const close = (error) => {
    why ??= error;
    closing.abort();
  };
  const isStream = answer.headers.get("Content-Type")?.startsWith(EVENT_STREAM);
  if (answer.status !== 200 || !isStream) {
    const error = await refusal(url, answer);
    close();
    throw error;
  }
  const begins = positionOf(answer.headers.get("Rsnotify-From"));
  const payloads = events(decoded(pieces(answer)), close, () => why);
  return { transport: "sse", begins, payloads, close, shown: web.shownFor(answer) };
}

/** The error that an answer stands for which serves no channel. */
export async function refusal(url, answer) {
  const detail = answer.status === 200 ? undefined : detailIn(await textOf(answer));
  if (answer.status === 410) return new TooOld(detail ?? "the channel no longer has it");
  const isUnsaid = answer.status === 404 && detail === undefined; // a hub says why
  if (answer.status !== 200) return refused(url, answer, detail, isUnsaid);
  const isPage = answer.headers.get("Content-Type")?.includes("html");
  const came = isPage ? "sent a page in HTML" : "serves something else";
  const message = `${url} is no channel: it ${came}, neither a WebSocket nor an event stream`;
  return new Rejected(message, { mayPass: true });
}

/** The data of each event; the stream's end is `TryAgain`. */
async function* events(texts, close, whyClosed) {
  const parse = eventParser();
  let count = 0;
  try {
    for await (const text of texts) {
      count += 1;
      yield* parse(text);
    }
    throw new TryAgain("the hub closed the stream");
  } catch (error) {
    const isCut = count < 2 && error instanceof TryAgain; // the first comes with the head
    throw whyClosed() ?? (isCut ? new TryAgain(error.message, { isCut }) : error);
  } finally {
    close();
  }
}

/** A function that is fed text and gives the data of the events that it completes. */
export function eventParser() {
  let rest = "";
  let data = [];
  let size = 0;
  let endsInCr = false; // which ends a line; a LF that follows belongs to it
  return (text) => {
    if (text === "") return [];
    const lines = (endsInCr ? text.replace(/^\n/, "") : text).split(/\r\n|\r|\n/);
    lines[0] = rest + lines[0];
    endsInCr = text.endsWith("\r");
    rest = lines.pop();
    const found = [];
    for (const line of lines) {
      if (line === "" && data.length) found.push(data.splice(0).join("\n"));
      if (line === "") size = 0;
      const field = /^data(?:: ?(.*))?$/s.exec(line);
      if (field) data.push(field[1] ?? "");
      size += line.length;
    }
    if (size + rest.length > NOTIFICATION_CHARS) {
      throw new TryAgain(`an event is longer than ${NOTIFICATION_CHARS} characters`);
    }
    return found;
  };
}

// WebSockets --------------------------------------------------------------------------------------

/** `{queue, payloads, close, shown}` of an open WebSocket; undefined if none can be had. */
async function openSocket(web, WebSocket, url) {
  const socket = await made(web, WebSocket, url);
  if (!socket) return undefined;
  const { signal } = web;
  const queue = new Queue(NOTIFICATION_CHARS);
  const close = (error = new TryAgain("following was ended")) => queue.end(error);
  const leave = () => close();
  signal?.addEventListener("abort", leave);
  queue.atEnd(() => signal?.removeEventListener("abort", leave));
  queue.atEnd(() => socket.close());
  socket.binaryType = "arraybuffer";
  socket.onmessage = ({ data }) => queue.put(textIn(data));
  socket.onclose = ({ code, reason }) => queue.end(ended(code, reason, queue.count));
  socket.onerror = () => {}; // it closes, too; of the package ws an unheard error ends the process
  const shown = web.shownFor(socket);
  if (await hasOpened(socket, queue)) {
    return { queue, payloads: payloadsOf(queue, close), close, shown };
  }
  close();
  return undefined;
}

/** A message may come in a binary frame, too. */
function textIn(data) {
  const isBinary = data instanceof ArrayBuffer || ArrayBuffer.isView(data);
  return isBinary ? new TextDecoder().decode(data) : String(data);
}

/** A page of https may not open ws. */
async function made(web, WebSocket, url) {
  try {
    return await web.socket(WebSocket, url);
  } catch (error) {
    if (error instanceof Rejected || error instanceof TryAgain) throw error; // of a token function
    return undefined;
  }
}

function hasOpened(socket, queue) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, HANDSHAKE_SECONDS * 1000, false);
    const told = (isOpen) => {
      clearTimeout(timer);
      resolve(isOpen);
    };
    socket.onopen = () => told(true);
    queue.atEnd(() => told(false));
  });
}

async function* payloadsOf(queue, close) {
  try {
    yield* queue;
  } finally {
    close();
  }
}

/** A program is told of no ping: whether a silent connection is dead must be asked. */
function watch({ queue }, isDead, seconds = QUIET_SECONDS) {
  let count = -1;
  let isAsked = false;
  const look = async () => {
    if (isAsked) return;
    const heard = queue.count;
    isAsked = heard === count && queue.isEmpty;
    if (isAsked && (await isDead()) && queue.count === heard) {
      const problem = "the connection is dead: it has not brought what the Source has";
      queue.end(new TryAgain(problem, { isCut: heard === 0 }));
    }
    isAsked = false;
    count = heard;
  };
  const timer = setInterval(look, seconds * 1000);
  queue.atEnd(() => clearInterval(timer));
}

/** Whether the hub stands after the cursor, or cannot be asked; where it says 429 it is there. */
async function hasMore(web, url, cursor) {
  try {
    const stream = await openStream(web, url);
    stream.close();
    return stream.begins > cursor && (!new URL(url).search || (await hasPart(web, url, cursor)));
  } catch (error) {
    return error.status !== 429;
  }
}

/** Whether anything is sent at once of the part that is asked for: what is newer may be none of it. */
async function hasPart(web, url, cursor) {
  const { payloads, close } = await openStream(web, url, cursor);
  const nothing = new TryAgain("nothing came at once");
  const timer = setTimeout(close, AT_ONCE_SECONDS * 1000, nothing);
  try {
    const { value } = await payloads.next();
    return readNotification(value).timed.length > 0;
  } catch (error) {
    if (error !== nothing) throw error;
    return false;
  } finally {
    clearTimeout(timer);
    close();
  }
}

function ended(code, reason, count) {
  if (code === TOO_OLD) return new TooOld(reason);
  if (REFUSED.includes(code)) {
    return new Rejected(reason || `the channel was closed with ${code}`, { closeCode: code });
  }
  const problem = `the connection was lost (${`${code ?? ""} ${reason ?? ""}`.trim()})`;
  return new TryAgain(problem, { isCut: count === 0 && code === NOT_CLOSED });
}

/** Texts that wait for their reader, up to a bound; then an end, which is an error. */
export class Queue {
  count = 0; // of all that were ever put

  #items = [];
  #size = 0;
  #bound;
  #error;
  #wake = () => {};
  #ends = [];

  constructor(bound) {
    this.#bound = bound;
  }

  get isEmpty() {
    return this.#items.length === 0;
  }

  /** What does not fit ends it: whoever reads comes again, and begins where they have got to. */
  put(item) {
    if (this.#error) return;
    this.count += 1;
    this.#items.push(item);
    this.#size += item.length;
    if (this.#size > this.#bound) this.end(new TryAgain("more was waiting than is kept"));
    this.#wake();
  }

  /** Done once it ends; at once if it has. */
  atEnd(action) {
    if (this.#error) action();
    else this.#ends.push(action);
  }

  end(error) {
    if (this.#error) return;
    this.#error = error;
    for (const action of this.#ends) action();
    this.#wake();
  }

  async *[Symbol.asyncIterator]() {
    for (;;) {
      for (let item; (item = this.#items.shift()) !== undefined; this.#size -= item.length)
        yield item;
      if (this.#error) throw this.#error;
      await new Promise((resolve) => (this.#wake = resolve));
    }
  }
}
