/** One connection of the JavaScript client: each frame as it came beside what it says, and whether the intervals join. */

import { channelOf } from "./api.js";
import { openChannel } from "./client/lib/channel.js";
import { readNotification } from "./client/lib/notification.js";
import { Web } from "./client/lib/web.js";
import { clock, coloured, counted, make, number, resource, submits, say, tag, the } from "./dom.js";
import { set } from "./here.js";
import { between } from "./minutes.js";
import { token } from "./token.js";

const FRAMES = 20; // that are kept
const CHARACTERS = 20_000; // of a frame that are shown
const COLOURED = 4_000; // characters of a frame that is coloured; longer ones would cost too much
const CHANGES = 5; // of a frame that are named
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
    choose();
    for await (const text of payloads) if (!signal.aborted) frame(text);
  } catch (error) {
    if (!signal.aborted) ended(error);
  }
}

function ended({ message, closeCode, status }, isBad = true) {
  const code = closeCode ?? status;
  disconnect.disabled = true;
  if (cursor) position.value = cursor;
  choose();
  say(state, `ended${code ? ` with ${code}` : ""}: ${message}`, isBad, true);
}

function frame(text) {
  const shown = text.slice(0, CHARACTERS);
  const raw = make.pre({ tabIndex: 0, ariaLabel: "The frame as it came" }, text.length < COLOURED ? coloured(shown, "xml") : shown);
  const said = make.div();
  try {
    const { from, until, timed } = readNotification(text);
    said.append(make.p({}, joined(from), ` ${clock(until)} · ${counted(timed.length, "change")}${since(until)}`),
      make.p({ className: "help" }, "after ", make.code({}, from), ", until ", make.code({}, until)),
      make.ul({}, ...timed.slice(0, CHANGES).map(({ change: { change = "", loc } }) => make.li({}, tag(change), " ", resource(loc))),
        ...(timed.length > CHANGES ? [make.li({}, `and ${number(timed.length - CHANGES)} more`)] : [])));
    cursor = until;
  } catch ({ message }) {
    said.append(make.strong({ className: "bad" }, message));
  }
  said.append(make.p({ className: "help" }, `${counted(text.length, "character")}${text.length > CHARACTERS ? `, the first ${number(CHARACTERS)} are shown` : ""}`));
  frames.prepend(Object.assign(make.li({}, said, raw), { text: text.toLowerCase() }));
  while (frames.children.length > FRAMES) leave(frames.lastChild);
  choose();
}

/** The focus does not leave with a frame. */
function leave(last) {
  if (last.contains(document.activeElement)) state.focus();
  last.remove();
}

const since = (until) => (cursor ? ` · ${between(cursor, until).toLocaleString("en", { maximumFractionDigits: 3 })} ms after the one before` : "");

function joined(from) {
  const [kind, text] = cursor === null ? ["", "first"]
    : cursor === from ? ["created", "joins"] : ["deleted", `gap of ${number(Math.round(between(cursor, from)))} ms after ${cursor}`];
  return make.span({ className: `joint tag ${kind}` }, text);
}

/** Only the frames in which the filter's text stands, as it came. */
function choose() {
  const wanted = the["frame-filter"].value.trim().toLowerCase();
  const all = [...frames.children];
  for (const each of all) each.hidden = !each.text.includes(wanted);
  const count = all.filter(({ hidden }) => !hidden).length;
  the["frames-shown"].textContent = wanted ? `${count} of ${counted(all.length, "frame")}` : all.length === FRAMES ? `the last ${FRAMES} frames`
    : all.length || disconnect.disabled ? "" : "No frame yet: the next change is shown here.";
}
the["frame-filter"].oninput = choose;
