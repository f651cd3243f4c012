/**
 * The debugger: one connection, each frame as it came, and whether the intervals join.
 */

import { channelOf } from "./api.js";
import { connect } from "./connection.js";
import { byId, clock, counted, element, tell } from "./dom.js";
import { parse } from "./notification.js";

const FRAMES = 20; // that are kept
const CHARACTERS = 20_000; // of a frame that are shown

const [form, frames, state] = ["connection", "frames", "connection-state"].map(byId);
let end = null;
let cursor = null;

export function watchForm(chosenSet) {
  form.onsubmit = (event) => {
    event.preventDefault();
    end?.();
    cursor = form.from.value.trim() || null;
    frames.replaceChildren();
    tell(state, "connecting…");
    byId("disconnect").disabled = false;
    end = connect(form.transport.value, channelOf(chosenSet(), form.kind.value), cursor, {
      opened: () => tell(state, `connected${cursor ? ` from ${cursor}` : ""}`),
      frame: show,
      ended,
    });
  };
  byId("disconnect").onclick = () => end?.();
}

/** Another set was chosen: what is shown is not of it. */
export function reset() {
  cursor = null;
  end?.();
  form.from.value = "";
  frames.replaceChildren();
  tell(state, "");
}

function ended({ code, reason }) {
  end = null;
  byId("disconnect").disabled = true;
  if (cursor) form.from.value = cursor; // to go on from there
  tell(state, `ended${code ? ` with ${code}` : ""}: ${reason || "no reason given"}`, code !== 1000);
}

function show(text) {
  const raw = element("details", {}, element("summary", { textContent: `raw, ${counted(text.length, "character")}` }),
    element("pre", { textContent: text.slice(0, CHARACTERS), tabIndex: 0 }));
  const shown = element("li", {}, raw);
  try {
    const { from, until, changes } = parse(text);
    raw.before(joined(from), ` ${clock(until)} · ${counted(changes.length, "change")} · after ${from}, until ${until}`);
    cursor = until;
  } catch (error) {
    raw.before(element("strong", { className: "bad", textContent: error.message }));
  }
  frames.prepend(shown);
  while (frames.children.length > FRAMES) frames.lastChild.remove();
}

function joined(from) {
  const [kind, textContent] = cursor === null ? ["", "first"]
    : cursor === from ? ["created", "joins"] : ["deleted", `gap after ${cursor}`];
  return element("span", { className: `tag ${kind}`, textContent });
}
