/**
 * The changes of a set as a table: its last ones and those that come, or those after a shared moment. However
 * many come, it has so many rows and is drawn so often. A filter hides what it does not name.
 */

import { get, setPath } from "./api.js";
import { byId, clock, element, link, row, table, tag, tell, toClipboard } from "./dom.js";

const ROWS = 50;
const PAUSE_MS = 200; // between two drawings

const body = table(byId("latest"), "Latest changes", "When", "What", "Resource");
body.closest(".scroll").append(byId("nothing"));
let newest = []; // the newest change first
let standing = []; // what is shown while the table stands still
let moment = null; // the changes after a shared one, the oldest first
let wasDrawn = null;
let timer = 0;
let isPaused = false;
let set = "";

export function clear(name) {
  [newest, moment, set] = [[], null, name];
  byId("filter").value = "";
  tell(byId("known"), "");
  draw();
}

export function add(changes) {
  newest = changes.slice(-ROWS).reverse().concat(newest).slice(0, ROWS);
  schedule();
}

/** What was before: only what is not there yet. */
export const addPast = (changes) => add(changes.filter(({ datetime }) => datetime > (last() ?? "")));

export function addGap(after, from) {
  newest = [{ gap: `Changes are missing after ${after}${from ? ` until ${from}` : ""}: see the Change Lists.` }, ...newest];
  add([]);
}

const firstOf = (changes) => changes.find(({ datetime }) => datetime)?.datetime;

export const last = () => firstOf(newest);

/** Show these and nothing newer. */
export function showMoment(changes, from) {
  moment = changes;
  byId("moment").replaceChildren(`${changes.length === ROWS ? `The first ${ROWS}` : "All"} changes after ${from}, the oldest first. `,
    element("a", { href: `?set=${encodeURIComponent(set)}`, textContent: "Show the latest" }));
  draw();
}

export function showLatest() {
  moment = null;
  draw();
}

export function watch() {
  byId("pause").onclick = ({ target }) => {
    isPaused = !isPaused;
    target.ariaPressed = isPaused;
    target.textContent = isPaused ? "Go on" : "Pause";
    schedule();
  };
  byId("filter").oninput = draw;
  byId("share").onclick = ({ target }) => {
    const from = moment ? new URLSearchParams(location.search).get("from") : before(firstOf(standing));
    toClipboard(new URL(`?${new URLSearchParams({ set, from })}`, location).href, target);
  };
  byId("lookup").onsubmit = async (event) => {
    event.preventDefault();
    const loc = byId("filter").value.trim();
    if (!loc) return;
    try {
      const { loc: _, ...known } = await get(`${setPath(set)}/resources`, { loc });
      const told = Object.entries(known).map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`);
      tell(byId("known"), `It is there: ${told.join(", ")}`);
    } catch (error) {
      tell(byId("known"), error.message, true);
    }
  };
}

/** The microsecond before: from there this change is the first. */
export function before(datetime) {
  const [milliseconds, rest] = [Date.parse(`${datetime.slice(0, 23)}Z`), Number(datetime.slice(23, 26))];
  const at = new Date(rest ? milliseconds : milliseconds - 1).toISOString().slice(0, 23);
  return `${at}${String((rest + 999) % 1000).padStart(3, "0")}Z`;
}

function schedule() {
  if (isPaused || moment || timer) return;
  draw();
  timer = setTimeout(() => { timer = 0; if (wasDrawn !== newest) schedule(); }, PAUSE_MS);
}

function draw() {
  if (!isPaused || newest.length === 0) standing = newest;
  wasDrawn = newest;
  if (moment) standing = moment;
  const wanted = byId("filter").value.trim().toLowerCase();
  const rows = standing.filter((each) => each.gap || `${each.change} ${each.loc}`.toLowerCase().includes(wanted));
  byId("moment").hidden = !moment;
  byId("share").disabled = !firstOf(standing);
  byId("nothing").textContent = rows.length ? "" : standing.length ? "None of those shown has this in it."
    : "No change yet. The first one appears here.";
  body.replaceChildren(...rows.map(rowOf));
}

function rowOf({ gap, datetime, change, loc }) {
  const made = gap ? row(gap) : row(element("time", { dateTime: datetime, title: datetime, textContent: clock(datetime) }), tag(change), link(loc));
  if (gap) Object.assign(made.cells[0], { colSpan: 3, className: "bad" });
  else made.cells[2].className = "loc";
  return made;
}
