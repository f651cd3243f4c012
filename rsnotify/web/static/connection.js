/** One connection to a channel. Its reader has `opened()`, `frame(text)` and, last, `ended({code, reason, isFinal})`. */

import { send } from "./api.js";

const FINAL = [1008, 4400, 4404, 4410];

/** What is returned ends it. */
export function connect(transport, url, from, reader) {
  const at = new URL(url);
  if (from) at.searchParams.set("from", from);
  let isOver = false;
  const [opened, frame, ended] = ["opened", "frame", "ended"].map((name) => (what) => {
    if (isOver) return;
    isOver = name === "ended";
    reader[name](what);
  });
  const end = (transport === "websocket" ? bySocket : byStream)(at, opened, frame, ended);
  return () => {
    ended({ code: 1000, reason: "disconnected" });
    end();
  };
}

function bySocket(at, opened, frame, ended) {
  const socket = new WebSocket(at.href.replace(/^http/, "ws"));
  let wasOpen = false;
  socket.onopen = () => { wasOpen = true; opened(); };
  socket.onmessage = ({ data }) => frame(data);
  socket.onclose = async ({ code, reason }) =>
    ended(wasOpen ? { code, reason, isFinal: FINAL.includes(code) } : await whyNot(at));
  return () => socket.close();
}

/** A browser does not say why a WebSocket was refused: the same address over HTTP does. */
const whyNot = (at) => send("HEAD", at.href).then(
  () => ({ reason: "the WebSocket was refused", isRefused: true }), failed);

function byStream(at, opened, frame, ended) {
  const ending = new AbortController();
  const options = { headers: { Accept: "text/event-stream" }, signal: ending.signal };
  send("GET", at.href, options).then(async ({ body }) => {
    opened();
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      const events = (rest + piece.value).split(/\r?\n\r?\n/);
      rest = events.pop();
      for (const data of events.map(dataOf)) if (data) frame(data);
    }
    ended({ reason: "the stream ended" });
  }).catch((error) => { ending.abort(); ended(failed(error)); });
  return () => ending.abort();
}

/** The `data` of one event; "" if it is a comment, or only moves the cursor. */
const dataOf = (event) => [...event.matchAll(/^data: ?([^\r\n]*)/gm)].map(([, line]) => line).join("\n");

const failed = ({ status = 0, message }) =>
  ({ code: status, reason: message, isFinal: status >= 400 && status < 500 && status !== 429 });
