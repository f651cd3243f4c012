/** One connection, each frame as it came, and whether the intervals join. */

import { channelOf } from "./api.js";
import { connect } from "./connection.js";
import { clock, counted, make, submits, say, the } from "./dom.js";
import { set } from "./here.js";
import { parse } from "./notification.js";

const FRAMES = 20; // that are kept
const CHARACTERS = 20_000; // of a frame that are shown

const { disconnect, frames } = the;
const [state, position] = [the["connection-state"], the.from];
let end = null;
let cursor = null;

submits(the.connection, ({ kind, transport }) => {
  end?.();
  cursor = position.value.trim() || null;
  frames.replaceChildren();
  say(state, "connecting…");
  disconnect.disabled = false;
  const opened = () => say(state, `connected${cursor ? ` from ${cursor}` : ""}`);
  end = connect(transport.value, channelOf(set.name, kind.value), cursor, { opened, frame, ended });
});
disconnect.onclick = () => end?.();

function ended({ code, reason }) {
  end = null;
  disconnect.disabled = true;
  if (cursor) position.value = cursor;
  say(state, `ended${code ? ` with ${code}` : ""}: ${reason || "no reason given"}`, code !== 1000);
}

function frame(text) {
  const raw = make.details({}, make.summary({}, `raw, ${counted(text.length, "character")}`),
    make.pre({ tabIndex: 0 }, text.slice(0, CHARACTERS)));
  frames.prepend(make.li({}, raw));
  try {
    const { from, until, changes } = parse(text);
    raw.before(joined(from), ` ${clock(until)} · ${counted(changes.length, "change")} · after ${from}, until ${until}`);
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
