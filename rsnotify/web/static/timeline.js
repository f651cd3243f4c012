/** The line of time of the set: how much changed when, in 24 hours, and a stretch of them that is chosen by hand.
 *
 * The hub counts nothing by the minute: the changes are read in pages, the newest first. What is not read is said.
 */

import { address, read as asText } from "./api.js";
import { positionOf } from "./client/lib/position.js";
import { counted, make, number, say, shows, submits, the } from "./dom.js";
import { cursor } from "./following.js";
import { asked, set } from "./here.js";
import {
  barsOf, DAY, endFor, faultOf, hoursOf, minuteIn, minuteOf, momentOf, moved, pathOf, stepFor, stretchOf, writtenOf,
} from "./minutes.js";

const LIMIT = 2000; // changes of a page
const PAGES = 5; // that are read without being asked
const PAUSE_MS = 200; // between two drawings
const SETTLED_MS = 400; // after the last key
const NEAR_PIXELS = 12; // of an edge, which a drag then moves
const { line } = the;
const svg = line.querySelector("svg");
const [bars, unread, brush] = svg.children;
const edges = line.querySelectorAll("[role=slider]");
const fields = [the["day-from"], the["day-until"]];

const minutes = new Map(); // how many changes each has
let until = null; // the last minute of a day that is over; null is now
let reached = null; // the position down to which all is read; null is the whole day
let trouble = "";
let chosen = null; // minutes: [from, until]
let heard = () => {};
let step = stepFor(line.clientWidth);
let isBegun = false; // before, nothing is known
let isReading = false;
let turn = 0; // older answers are dropped
let timer = 0;
let settling = 0;
let anchor = null; // the edge of a stretch that stays, while the other is drawn

const now = () => endFor(Math.max(Math.ceil(Date.now() / 60_000), ...(until === null ? minutes.keys() : [])), step);
const end = () => (until === null ? now() : endFor(until, step));
const hour = (minute) => new Date(minute * 60_000).toTimeString().slice(0, 5);
const listUp = (position) => address(`${set.name}/changelist.xml?${new URLSearchParams({ until: position, limit: LIMIT, format: "json" })}`);

/** `choose` gets `{from, until}` whenever a stretch is chosen, and null if none is any more. */
export function open(choose) {
  heard = choose;
  const [first, last] = ["from", "until"].map((name) => positionOf(asked.get(name) ?? "")).map((each) => each && minuteOf(each));
  if (first && last) write([first, Math.max(last, first + 1)]);
  if (first && !isToday(first)) turnToOne(first, last ?? first);
  else draw();
  new ResizeObserver(draw).observe(line);
}

/** All of the day anew; what comes later is added. */
export async function read() {
  isBegun = true;
  minutes.clear();
  [reached, trouble] = [until === null ? cursor : momentOf(end()), ""];
  await readOn();
}

export function add(changes) {
  if (until === null) changes.forEach(({ datetime }) => count(datetime));
  schedule();
}

export function clear() {
  choose(null);
  heard(null);
}

function count(position) {
  const minute = minuteOf(position);
  minutes.set(minute, (minutes.get(minute) ?? 0) + 1);
}

/** Some pages more, down to the beginning of the day. */
async function readOn() {
  turn += 1;
  const mine = turn;
  isReading = true;
  try {
    for (let page = 0; page < PAGES && reached; page += 1) {
      const { from, links, changes } = JSON.parse(await asText(listUp(reached)));
      if (mine !== turn) return;
      changes.forEach(({ datetime }) => count(datetime));
      const isAll = minuteOf(from) <= end() - DAY || !links.some(({ rel }) => rel === "prev");
      reached = isAll ? null : from;
      draw();
    }
  } catch ({ message }) {
    if (mine === turn) trouble = message;
  }
  if (mine !== turn) return;
  isReading = false;
  draw();
}

// --- drawing -------------------------------------------------------------------------------------

function schedule() {
  timer ||= setTimeout(draw, PAUSE_MS);
}

function draw() {
  clearTimeout(timer);
  timer = 0;
  step = stepFor(line.clientWidth);
  const last = end();
  for (const minute of minutes.keys()) if (minute <= last - DAY) minutes.delete(minute);
  const drawn = barsOf(minutes, last, step);
  bars.setAttribute("d", pathOf(drawn));
  bars.setAttribute("transform", `scale(${step} 1)`);
  unread.setAttribute("width", reached ? Math.max(0, minuteOf(reached) - last + DAY) : 0);
  the.hours.replaceChildren(...hoursOf(last, line.clientWidth < 600 ? 6 : 3).map(([minute, text]) => {
    const made = make.span({}, text);
    made.style.left = place(minute, last);
    return made;
  }));
  the["day-title"].textContent = until === null ? "The last 24 hours" : `24 hours until ${new Date(last * 60_000).toLocaleString("sv").slice(0, 16)}`;
  the["day-after"].ariaDisabled = until === null ? "true" : null; // not `disabled`, which would take the focus away
  drawChosen(last);
  describe(drawn, last);
}

const place = (minute, last) => `${Math.min(100, Math.max(0, 100 * (minute - last + DAY) / DAY))}%`;

function drawChosen(last) {
  const [from, to] = chosen ?? [last - DAY, last];
  line.classList.toggle("chosen", chosen !== null);
  shows(the.whole, chosen !== null, the["day-before"]);
  brush.setAttribute("x", Math.max(0, from - last + DAY));
  brush.setAttribute("width", chosen ? Math.max(0, Math.min(to, last) - Math.max(from, last - DAY)) : 0);
  edges.forEach((edge, at) => {
    const minute = at ? to : from;
    edge.style.left = place(minute, last);
    Object.assign(edge, { ariaValueMin: last - DAY, ariaValueMax: last, ariaValueNow: minute, ariaValueText: hour(minute) });
  });
}

const sum = (some) => some.reduce((all, each) => all + each, 0);

function describe(drawn, last) {
  const most = Math.max(...drawn);
  const at = last - DAY + drawn.indexOf(most) * step;
  const all = !isBegun ? "Not read yet"
    : chosen ? describeStretch(chosen, last)
    : most ? `${counted(sum(drawn), "change")}; most from ${hour(at)} to ${hour(at + step)}: ${number(most)}`
      : "No change in these 24 hours";
  const left = !reached || trouble ? "" : isReading ? " Reading on…" : ` What is shaded, before ${hour(minuteOf(reached))}, is not read yet.`;
  say(the["day-says"], trouble ? `The line cannot be read: ${trouble}` : reached && !most && isReading ? "Reading…" : `${all}.${left}`, trouble !== "");
  shows(the["read-on"], !isReading && (reached !== null || trouble !== ""), edges[0]);
}

function describeStretch([from, to], last) {
  const many = counted(sum([...minutes].map(([minute, each]) => (minute > from && minute <= to ? each : 0))), "change");
  const isDrawn = from >= last - DAY && to <= last;
  return isDrawn ? `${hour(from)} to ${hour(to)}: ${many}` : `${many} of the stretch in these 24 hours`;
}

// --- by hand -------------------------------------------------------------------------------------

function choose(stretch) {
  write(stretch);
  draw();
}

/** The fields follow what is chosen, and only that: not each drawing, while somebody writes in them. */
function write(stretch) {
  chosen = stretch;
  fields.forEach((field, edge) => {
    field.value = stretch ? writtenOf(stretch[edge]) : "";
    field.ariaInvalid = null;
  });
  say(the["exact-wrong"], "");
}

function tell() {
  heard({ from: momentOf(chosen[0]), until: momentOf(chosen[1]) });
}

function minuteAt({ clientX }) {
  const { left, width } = line.getBoundingClientRect();
  return end() - DAY + DAY * Math.min(1, Math.max(0, (clientX - left) / width));
}

line.onpointerdown = (event) => {
  if (event.button) return;
  line.setPointerCapture(event.pointerId);
  const minute = minuteAt(event);
  const near = DAY * NEAR_PIXELS / line.clientWidth;
  const taken = chosen?.findIndex((each) => Math.abs(each - minute) < near) ?? -1;
  anchor = taken < 0 ? minute : chosen[1 - taken];
  choose(stretchOf(anchor, minute, end(), step));
};
line.onpointermove = (event) => {
  if (anchor !== null) choose(stretchOf(anchor, minuteAt(event), end(), step));
};
line.onpointerup = () => {
  if (anchor !== null) tell();
  anchor = null;
};
line.onpointercancel = () => { // it was a scroll
  if (anchor !== null) clear();
  anchor = null;
};
edges.forEach((edge, at) => {
  edge.onkeydown = (event) => {
    const last = end();
    const found = moved(chosen ?? [last - DAY, last], at, event.key, last, step);
    if (event.key === "Escape" && chosen) clear();
    if (!found) return;
    event.preventDefault();
    choose(found);
    clearTimeout(settling);
    settling = setTimeout(tell, SETTLED_MS);
  };
});
submits(the.exact, () => {
  const stretch = fields.map(({ value }) => minuteIn(value));
  const [wrong, why] = faultOf(stretch, now()) ?? [];
  fields.forEach((field, edge) => { field.ariaInvalid = edge === wrong ? "true" : null; });
  say(the["exact-wrong"], why ?? "", true);
  if (why) {
    fields[wrong].focus();
    return;
  }
  const [from, to] = stretch;
  choose(stretch);
  if (from < end() - DAY || to > end()) turnToOne(from, to);
  tell();
});
the.whole.onclick = clear;
the["read-on"].onclick = readOn;
the["day-before"].onclick = () => turnTo((until ?? end()) - DAY);
the["day-after"].onclick = () => { if (until !== null) turnTo(until + DAY); };

const isToday = (minute) => Date.now() / 60_000 - minute <= DAY;

/** To the day in which a stretch ends. */
function turnToOne(from, to) {
  until = isToday(from) ? null : Math.max(to, from + DAY / 2);
  read();
}

function turnTo(last) {
  until = last < Date.now() / 60_000 ? last : null;
  if (chosen) clear();
  read();
}
