/**
 * The latest changes as a table. However many come, it has so many rows and is drawn so often.
 */

import { byId, element, foreign, link } from "./dom.js";

const ROWS = 50;
const PAUSE_MS = 200; // between two drawings

let newest = []; // the newest change first
let timer = 0;
let isPaused = false;

export function clear() {
  newest = [];
  draw();
}

export function add(changes) {
  newest = changes.slice(-ROWS).reverse().concat(newest).slice(0, ROWS);
  schedule();
}

export function addGap(after, from) {
  newest = [{ gap: { after, from } }, ...newest].slice(0, ROWS);
  schedule();
}

export function watchPause() {
  byId("pause").onclick = (event) => {
    isPaused = !isPaused;
    event.target.setAttribute("aria-pressed", String(isPaused));
    event.target.textContent = isPaused ? "Go on" : "Pause";
    schedule();
  };
}

function schedule() {
  if (isPaused || timer) return;
  draw();
  timer = setTimeout(() => { timer = 0; if (wasDrawn !== newest) schedule(); }, PAUSE_MS);
}

let wasDrawn = null;

function draw() {
  wasDrawn = newest;
  byId("nothing").hidden = newest.length > 0;
  byId("latest").replaceChildren(...newest.map((each) => (each.gap ? gapRow(each.gap) : row(each))));
}

function row({ datetime, change, loc }) {
  const when = element("time", { dateTime: datetime, title: datetime, textContent: clock(datetime) });
  return element("tr", {},
    element("td", {}, when),
    element("td", {}, element("span", { className: `tag ${known(change)}` }, foreign(change))),
    element("td", { className: "loc" }, link(loc)));
}

const known = (change) => (["created", "updated", "deleted"].includes(change) ? change : "");

function gapRow({ after, from }) {
  const told = `Changes are missing after ${after}${from ? ` until ${from}` : ""}: see the Change Lists.`;
  return element("tr", {}, element("td", { colSpan: 3, className: "bad", textContent: told }));
}

/** The time of day, here, to the millisecond. */
export function clock(datetime) {
  const time = new Date(datetime);
  return `${time.toLocaleTimeString("en-GB")}.${String(time.getMilliseconds()).padStart(3, "0")}`;
}
