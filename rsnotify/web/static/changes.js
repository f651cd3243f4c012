/**
 * The changes of a set as a table: its last ones and those that come, or those after a shared moment. However
 * many come, it has so many rows and is drawn so often. A filter hides what it does not name.
 */

import { ask } from "./api.js";
import { byId, element, foreign, link, tell, toClipboard } from "./dom.js";

const ROWS = 50;
const PAUSE_MS = 200; // between two drawings

let newest = []; // the newest change first
let moment = null; // the changes after a shared one, the oldest first
let timer = 0;
let isPaused = false;
let set = "";

export function clear(name) {
  [newest, moment, set] = [[], null, name];
  byId("moment").hidden = true;
  byId("filter").value = "";
  tell(byId("known"), "");
  draw();
}

export function add(changes) {
  newest = changes.slice(-ROWS).reverse().concat(newest).slice(0, ROWS);
  schedule();
}

/** What was before: only what is not there yet. */
export function addPast(changes) {
  const last = newest.find(({ datetime }) => datetime)?.datetime ?? "";
  add(changes.filter(({ datetime }) => datetime > last));
}

export function addGap(after, from) {
  newest = [{ gap: { after, from } }, ...newest].slice(0, ROWS);
  schedule();
}

export const last = () => newest.find(({ datetime }) => datetime)?.datetime;

/** Show these and nothing newer. */
export function showMoment(changes, from) {
  moment = changes;
  byId("moment").hidden = false;
  byId("moment").replaceChildren(`${changes.length === ROWS ? `The first ${ROWS}` : "All"} changes after ${from}, the oldest first. `,
    element("a", { href: `?set=${encodeURIComponent(set)}`, textContent: "Show the latest" }));
  draw();
}

export function showLatest() {
  if (!moment) return;
  moment = null;
  byId("moment").hidden = true;
  draw();
}

export function watch() {
  byId("pause").onclick = ({ target }) => {
    isPaused = !isPaused;
    target.setAttribute("aria-pressed", String(isPaused));
    target.textContent = isPaused ? "Go on" : "Pause";
    schedule();
  };
  byId("filter").oninput = draw;
  byId("share").onclick = ({ target }) => {
    const at = moment ? new URLSearchParams(location.search).get("from") : before(shown()[0].datetime);
    const url = new URL(`?${new URLSearchParams({ set, from: at })}`, location);
    toClipboard(url.href, target);
  };
  byId("lookup").onsubmit = async (event) => {
    event.preventDefault();
    const [loc, place] = [byId("filter").value.trim(), byId("known")];
    if (!loc) return;
    try {
      const found = await ask("GET", `api/sets/${encodeURIComponent(set)}/resources?${new URLSearchParams({ loc })}`);
      const { loc: _, ...rest } = found;
      const told = Object.entries(rest).map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`);
      tell(place, `It is there: ${told.join(", ")}`);
    } catch (error) {
      tell(place, error.message, true);
    }
  };
}

/** The moment just before: from there this change is the first. */
export function before(datetime) {
  const microseconds = BigInt(Date.parse(`${datetime.slice(0, 23)}Z`)) * 1000n + BigInt(datetime.slice(23, 26)) - 1n;
  const milliseconds = new Date(Number(microseconds / 1000n)).toISOString().slice(0, 23);
  return `${milliseconds}${String(microseconds % 1000n).padStart(3, "0")}Z`;
}

function schedule() {
  if (isPaused || moment || timer) return;
  draw();
  timer = setTimeout(() => { timer = 0; if (wasDrawn !== newest) schedule(); }, PAUSE_MS);
}

let wasDrawn = null;
let standing = []; // what is shown while the table stands still

const shown = () => standing.filter(({ datetime }) => datetime);

function draw() {
  if (!isPaused || newest.length === 0) standing = newest;
  wasDrawn = newest;
  if (moment) standing = moment;
  const wanted = byId("filter").value.trim().toLowerCase();
  const rows = standing.filter((each) => each.gap || `${each.change} ${each.loc}`.toLowerCase().includes(wanted));
  byId("share").disabled = shown().length === 0;
  byId("nothing").hidden = rows.length > 0;
  byId("nothing").textContent = standing.length ? "None of those shown has this in it."
    : "No change yet. The first one appears here.";
  byId("latest").replaceChildren(...rows.map((each) => (each.gap ? gapRow(each.gap) : row(each))));
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

/** The time of day, here, to the millisecond; with its day if that is not today. */
export function clock(datetime) {
  const time = new Date(datetime);
  const day = time.toDateString() === new Date().toDateString() ? "" : `${time.toLocaleDateString("sv")} `;
  return `${day}${time.toLocaleTimeString("en-GB")}.${String(time.getMilliseconds()).padStart(3, "0")}`;
}
