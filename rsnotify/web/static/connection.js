/**
 * One connection to a channel, by WebSocket or as an event stream. It does not come back by itself.
 *
 * `heard` has `opened()`, `frame(text)` and `ended({code, reason, isFinal})`; the last is called
 * once. `isFinal` means that trying again would end in the same way. What is returned ends it.
 */

import { Refused, send } from "./api.js";

const WRONG = new Set([1008, 4400, 4404, 4410]); // close codes that a new connection would get too

export function connect(transport, url, from, heard) {
  const at = new URL(url);
  if (from) at.searchParams.set("from", from);
  const listener = untilEnded(heard);
  const end = (transport === "websocket" ? bySocket : byStream)(at, listener);
  return () => {
    listener.ended({ code: 1000, reason: "disconnected", isFinal: true });
    end();
  };
}

/** Tells of the end once, and of nothing after it. */
function untilEnded(heard) {
  let isOver = false;
  return {
    opened: () => { if (!isOver) heard.opened(); },
    frame: (text) => { if (!isOver) heard.frame(text); },
    ended: (how) => {
      if (isOver) return;
      isOver = true;
      heard.ended(how);
    },
  };
}

function bySocket(at, heard) {
  const socket = new WebSocket(at.href.replace(/^http/, "ws"));
  let wasOpen = false;
  socket.onopen = () => { wasOpen = true; heard.opened(); };
  socket.onmessage = (event) => heard.frame(event.data);
  socket.onclose = async ({ code, reason }) => {
    const known = { code, reason, isFinal: WRONG.has(code) };
    heard.ended(wasOpen ? known : await whyNot(at, known));
  };
  return () => {
    socket.onclose = null;
    socket.close();
  };
}

/** A browser does not tell a page why a WebSocket was refused: the same address over HTTP does. */
async function whyNot(at, known) {
  try {
    await send("HEAD", at.href);
    return { ...known, reason: "the WebSocket was refused", isRefused: true };
  } catch (error) {
    return failed(error);
  }
}

function byStream(at, heard) {
  const ending = new AbortController();
  read(at, ending.signal, heard).then(
    () => heard.ended({ code: 0, reason: "the stream ended", isFinal: false }),
    (error) => { ending.abort(); heard.ended(failed(error)); },
  );
  return () => ending.abort();
}

async function read(at, signal, heard) {
  const answer = await send("GET", at.href, { headers: { Accept: "text/event-stream" }, signal });
  heard.opened();
  let rest = "";
  for await (const text of pieces(answer.body.pipeThrough(new TextDecoderStream()))) {
    const events = (rest + text).split(/\r?\n\r?\n/);
    rest = events.pop();
    for (const data of events.map(dataOf)) if (data) heard.frame(data);
  }
}

async function* pieces(stream) { // not every browser iterates streams by itself
  const reader = stream.getReader();
  for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) {
    yield value;
  }
}

/** The `data` of one event; nothing of a comment, or of an event that only moves the cursor. */
export function dataOf(event) {
  const lines = event.split(/\r?\n/).filter((line) => line.startsWith("data:"));
  return lines.map((line) => line.slice(5).replace(/^ /, "")).join("\n");
}

function failed(error) {
  const status = error instanceof Refused ? error.status : 0;
  const isFinal = status >= 400 && status < 500 && status !== 429;
  return { code: status, reason: error.message, isFinal };
}
