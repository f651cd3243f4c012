/**
 * The debugger: one connection, each frame as it came, and whether the intervals join.
 */

import { channelOf } from "./api.js";
import { connect } from "./connection.js";
import { byId, element, tell } from "./dom.js";
import { clock } from "./changes.js";
import { parse } from "./notification.js";

const FRAMES = 20; // that are kept
const CHARACTERS = 20_000; // of a frame that are shown

let end = null;
let cursor = null;

export function watchForm(chosenSet) {
  const form = byId("connection");
  form.onsubmit = (event) => {
    event.preventDefault();
    end?.();
    cursor = form.from.value.trim() || null;
    tell(byId("connection-state"), "connecting…");
    byId("frames").replaceChildren();
    begin(form.transport.value, channelOf(chosenSet(), form.kind.value));
  };
  byId("disconnect").onclick = () => end?.();
}

/** Another set was chosen: what is shown is not of it. */
export function reset() {
  cursor = null;
  end?.();
  byId("from").value = "";
  byId("frames").replaceChildren();
  tell(byId("connection-state"), "");
}

function begin(transport, url) {
  byId("disconnect").disabled = false;
  end = connect(transport, url, cursor, {
    opened: () => tell(byId("connection-state"), `connected${cursor ? ` from ${cursor}` : ""}`),
    frame: show,
    ended: ({ code, reason }) => {
      end = null;
      byId("disconnect").disabled = true;
      if (cursor) byId("from").value = cursor; // to go on from there
      const told = `ended${code ? ` with ${code}` : ""}: ${reason || "no reason given"}`;
      tell(byId("connection-state"), told, code !== 1000);
    },
  });
}

function show(text) {
  const frames = byId("frames");
  frames.prepend(element("li", {}, ...described(text)));
  while (frames.children.length > FRAMES) frames.lastChild.remove();
}

function described(text) {
  const raw = element("pre", { textContent: text.slice(0, CHARACTERS), tabIndex: 0 });
  const summary = element("summary", { textContent: `raw, ${text.length.toLocaleString("en")} characters` });
  const parts = [element("details", {}, summary, raw)];
  try {
    const { from, until, changes } = parse(text);
    parts.unshift(joined(from), ` ${clock(until)} · ${counted(changes.length)} · after ${from}, until ${until}`);
    cursor = until;
  } catch (error) {
    parts.unshift(element("strong", { className: "bad", textContent: error.message }));
  }
  return parts;
}

const counted = (number) => `${number.toLocaleString("en")} change${number === 1 ? "" : "s"}`;

function joined(from) {
  if (cursor === null) return element("span", { className: "tag", textContent: "first" });
  if (cursor === from) return element("span", { className: "tag created", textContent: "joins" });
  return element("span", { className: "tag deleted", textContent: `gap after ${cursor}` });
}
