/** The hub as a living picture: what Sources publish goes through the sets that changed last to those who read them. */

import { get } from "./api.js";
import { counted, drawn, say, the } from "./dom.js";
import { fly, holds } from "./dots.js";
import * as following from "./following.js";
import { ownLine } from "./own_line.js";
import { token } from "./token.js";

const PLACES = [2, 1, 3, 0, 4]; // for sets, from the middle
const [STEP, FIRST, LETTERS] = [34, 24, 20]; // between two sets, to the first, of a name that fits
const READERS = [ // how a set is read, and the readers of a channel that do so
  ["WebSocket", ({ websocket }) => websocket],
  ["stream or poll", (readers) => readers["event stream"] + readers["long poll"]],
  ["lists", () => 0], // each change is there for whoever asks
];
const OVER = { // which of these this page is, and how it says so
  websocket: [0, "WebSocket"], sse: [1, "event stream"], "long-poll": [1, "long poll"], polling: [2, "lists"],
};
const middle = FIRST + STEP * PLACES[0];
const readerAt = (at) => middle + (at - 1) * 56;
const [SOURCES_END, SET, SET_END, READERS_BEGIN] = [80, 166, 306, 384]; // from left to right
const curve = (x, y, toX, toY) => `M${x},${y} C${(x + toX) / 2},${y} ${(x + toX) / 2},${toY} ${toX},${toY}`;

const lines = drawn("g");
const own = drawn("path", { class: "own" });
const missing = drawn("text", { class: "missing", x: (SET_END + READERS_BEGIN) / 2 });
const dots = drawn("g", { class: "dots" });
const picture = drawn("svg", { viewBox: `0 0 480 ${STEP * PLACES.length + 14}`, class: "picture", role: "group",
  "aria-label": "Sources publish to sets; each set has its readers. A dot is a change." }, lines, own, dots);
const readers = READERS.map(([name], at) => ({ name, count: box(READERS_BEGIN, readerAt(at), 94, 36, name, "–") }));
box(4, middle, 76, 44, "Sources");
const places = [];
let chosen = null; // the place of the set that this page follows
let line = null; // over which it does
let among = 0; // the readers among whom this page is

picture.append(missing);
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
  const name = drawn("text", { x: (SET + SET_END) / 2, y: y + 4 });
  const ends = READERS.map((_, to) => curve(SET_END, y, READERS_BEGIN, readerAt(to)));
  const ways = ends.map((end) => drawn("path", { d: `${curve(SOURCES_END, middle, SET, y)} ${end.replace("M", "L")}` }));
  lines.append(...ways);
  const button = drawn("g", { role: "button", tabindex: 0, "aria-pressed": false },
    drawn("rect", { x: SET, y: y - 13, width: SET_END - SET, height: 26, rx: 8 }), name);
  const made = { set: "", y, name, ways, button, ends, today: null };
  button.onclick = () => choose(made);
  button.onkeydown = (event) => {
    if (![" ", "Enter"].includes(event.key)) return;
    event.preventDefault();
    choose(made);
  };
  missing.before(button);
  return made;
}

/** Follow the set that stands there, and no other; chosen again, none. */
function choose(found) {
  line?.leave();
  line = null;
  chosen?.button.setAttribute("aria-pressed", false);
  chosen = found === chosen ? null : found;
  missing.textContent = "";
  joins(0);
  the["cut-line"].hidden = !chosen;
  the["try-line"].hidden = true;
  if (!chosen) {
    say(the["line-says"], "");
    return;
  }
  chosen.button.setAttribute("aria-pressed", true);
  the["cut-line"].disabled = true;
  follow(chosen);
}

/** Draw the line of this page to those readers. */
function joins(readersAt) {
  among = readersAt;
  own.setAttribute("d", chosen?.ends[among] ?? "");
  if (chosen) missing.setAttribute("y", Math.max(12, (chosen.y + readerAt(among)) / 2 - 6));
}

async function follow(found) {
  const { set, ways } = found;
  const mine = ownLine(set, { picture, dots, own: () => ways[among], others: () => found.read, missing,
    cut: the["cut-line"], work: the["line-says"], five: the["try-line"] });
  line = mine;
  say(the["line-says"], `Connecting to ${set}…`);
  following.follow({
    state: (text, isBad) => {
      const isNews = the["cut-line"].disabled || the["line-says"].classList.contains("bad");
      if (text === "live") {
        const [readersAt, words] = OVER[following.transport];
        joins(readersAt);
        if (isNews) say(the["line-says"], `This page follows ${set} now, by ${words}.`);
      } else if (isBad && text !== "cut by you") say(the["line-says"], `${set}: ${text}`, true);
      if (!isBad) mine.joined();
    },
    gap: mine.gap,
    notification: (those) => mine.arrived(those.length),
  }, set);
  const rights = token() ? await get("api/rights", { name: set }).catch(() => ({})) : {};
  if (line === mine) the["try-line"].hidden = !rights.publish;
}

/** What the hub says of the set that this page follows. */
export function told(sets) {
  if (!chosen) return;
  const found = sets.find(({ name }) => name === chosen.set);
  if (found) line.seen(found.newest ?? "");
}

/** `sets` as the hub's status has them, those first that changed last. */
export function live(sets) {
  const kept = sets.filter(({ name }) => name === chosen?.set); // what is followed stays where it is
  const others = sets.filter((each) => !kept.includes(each)).slice(0, PLACES.length - (chosen ? 1 : 0));
  const shown = [...kept, ...others];
  while (places.length < others.length + (chosen ? 1 : 0)) places.push(place(places.length));
  const free = places.filter((each) => each !== chosen && !shown.some(({ name }) => name === each.set));
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
  found.button.setAttribute("aria-label", `Follow ${name}`);
  return Object.assign(found, { set: name, today: null });
}

function move(found, { changes_today: today, channels }) {
  const came = found.today === null ? 0 : Math.max(0, today - found.today);
  found.today = today;
  const [{ readers: now }] = channels;
  found.read = found.ways.filter((_, at) => at === READERS.length - 1 || READERS[at][1](now) > 0);
  if (found === chosen) found.read = found.read.filter((way) => way !== found.ways[among]);
  else fly(dots, came, found.read); // those of the set that is followed came over this page's line
}
