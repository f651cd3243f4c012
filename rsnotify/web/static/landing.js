/** The hub as a living picture: what Sources publish goes through the sets that changed last to those who read them. */

import { fly, holds } from "./dots.js";
import { counted, drawn, the } from "./dom.js";

const PLACES = [2, 1, 3, 0, 4]; // for sets, from the middle
const [STEP, FIRST, LETTERS] = [34, 24, 20]; // between two sets, to the first, of a name that fits
const READERS = [ // how a set is read, and the readers of a channel that do so
  ["WebSocket", ({ websocket }) => websocket],
  ["event stream", (readers) => readers["event stream"] + readers["long poll"]],
  ["lists", () => 0], // each change is there for whoever asks
];
const middle = FIRST + STEP * PLACES[0];
const readerAt = (at) => middle + (at - 1) * 56;
const curve = (x, y, toX, toY) => `M${x},${y} C${(x + toX) / 2},${y} ${(x + toX) / 2},${toY} ${toX},${toY}`;

const lines = drawn("g");
const dots = drawn("g", { class: "dots" });
const picture = drawn("svg", { viewBox: `0 0 480 ${STEP * PLACES.length + 14}`, class: "picture", role: "img",
  "aria-label": "Sources publish to sets; each set has its readers. A dot is a change." }, lines, dots);
const readers = READERS.map(([name], at) => ({ name, count: box(392, readerAt(at), 84, 36, name, "–") }));
box(4, middle, 76, 44, "Sources");
const places = [];

the.landing.prepend(picture);
holds(the.hold, dots);

/** A box around what is written in it; its second line. */
function box(x, y, width, height, first, second) {
  const one = drawn("text", { x: x + width / 2, y: y + (second ? -2 : 4) }, first);
  const other = drawn("text", { x: x + width / 2, y: y + 12, class: "soft" }, second ?? "");
  picture.append(drawn("rect", { x, y: y - height / 2, width, height, rx: 8 }), one, other);
  return other;
}

function place(at) {
  const y = FIRST + PLACES[at] * STEP;
  const name = drawn("text", { x: 236, y: y + 4 });
  const ways = READERS.map((_, to) => drawn("path", { d: `${curve(80, middle, 166, y)} L306,${y} ${curve(306, y, 392, readerAt(to)).replace("M", "L")}` }));
  lines.append(...ways);
  picture.append(drawn("rect", { x: 166, y: y - 13, width: 140, height: 26, rx: 8 }), name);
  return { set: "", name, ways, today: null };
}

/** `sets` as the hub's status has them, those first that changed last. */
export function live(sets) {
  const shown = sets.slice(0, PLACES.length);
  while (places.length < shown.length) places.push(place(places.length));
  const free = places.filter(({ set }) => !shown.some(({ name }) => name === set));
  for (const set of shown) {
    const found = places.find((each) => each.set === set.name) ?? settle(free.shift(), set.name);
    move(found, set);
  }
  READERS.forEach(([, of], at) => {
    const count = sets.flatMap(({ channels }) => channels).reduce((sum, channel) => sum + of(channel.readers), 0);
    readers[at].count.textContent = at === READERS.length - 1 ? "for all" : counted(count, "reader");
  });
  the.landing.hidden = !sets.length;
}

function settle(found, name) {
  found.name.textContent = name.length > LETTERS ? `${name.slice(0, LETTERS - 1)}…` : name;
  return Object.assign(found, { set: name, today: null });
}

function move(found, { changes_today: today, channels }) {
  const came = found.today === null ? 0 : Math.max(0, today - found.today);
  found.today = today;
  const [{ readers: now }] = channels;
  fly(dots, came, found.ways.filter((_, at) => at === READERS.length - 1 || READERS[at][1](now) > 0));
}
