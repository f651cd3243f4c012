/** One connection of the JavaScript client, each frame as it came, and whether the intervals join. */

import { channelOf } from "./api.js";
import { openChannel } from "./client/lib/channel.js";
import { readNotification } from "./client/lib/notification.js";
import { Web } from "./client/lib/web.js";
import { clock, counted, make, submits, say, the } from "./dom.js";
import { set } from "./here.js";
import { token } from "./token.js";

const FRAMES = 20; // that are kept
const CHARACTERS = 20_000; // of a frame that are shown
const TRANSPORTS = { websocket: "a WebSocket", sse: "an event stream" };

const { disconnect, frames } = the;
const [state, position] = [the["connection-state"], the.from];
let leaving = new AbortController();
let cursor = null;

submits(the.connection, ({ kind, transport }) => {
  leaving.abort();
  cursor = position.value.trim() || null;
  frames.replaceChildren();
  say(state, "connecting…");
  disconnect.disabled = false;
  leaving = new AbortController();
  show(channelOf(set.name, kind.value), transport.value, leaving.signal);
});
disconnect.onclick = () => {
  leaving.abort();
  ended({ message: "disconnected" }, false);
};

/** Until it ends; what was replaced says no more. */
async function show(url, wanted, signal) {
  const web = new Web({ url, token: token(), signal });
  const [at, options] = wanted === "websocket" ? [url.replace(/^http/, "ws"), { WebSocket }] : [url, {}];
  try {
    const { transport, payloads } = await openChannel(web, at, () => cursor ?? undefined, options);
    const other = transport === wanted ? "" : `, over ${TRANSPORTS[transport]}: ${TRANSPORTS[wanted]} was refused`;
    say(state, `connected${cursor ? ` from ${cursor}` : ""}${other}`);
    for await (const text of payloads) if (!signal.aborted) frame(text);
  } catch (error) {
    if (!signal.aborted) ended(error);
  }
}

function ended({ message, closeCode, status }, isBad = true) {
  const code = closeCode ?? status;
  disconnect.disabled = true;
  if (cursor) position.value = cursor;
  say(state, `ended${code ? ` with ${code}` : ""}: ${message}`, isBad);
}

function frame(text) {
  const raw = make.details({}, make.summary({}, `raw, ${counted(text.length, "character")}`),
    make.pre({ tabIndex: 0 }, text.slice(0, CHARACTERS)));
  frames.prepend(make.li({}, raw));
  try {
    const { from, until, timed } = readNotification(text);
    raw.before(joined(from), ` ${clock(until)} · ${counted(timed.length, "change")} · after ${from}, until ${until}`);
    cursor = until;
  } catch ({ message }) {
    raw.before(make.strong({ className: "bad" }, message));
  }
  while (frames.children.length > FRAMES) frames.lastChild.remove();
}

function joined(from) {
  const [kind, text] = cursor === null ? ["", "first"]
    : cursor === from ? ["created", "joins"] : ["deleted", `gap after ${cursor}`];
  return make.span({ className: `tag ${kind}` }, text);
}
