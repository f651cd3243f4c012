/** The latest changes of the set as a table, or those of a stretch of time that is shared. */

import { get, setPath } from "./api.js";
import { clock, keepRows, make, resource, row, shows, submits, table, tag, say, the, toClipboard } from "./dom.js";
import { showFacts } from "./facts.js";
import { history as changesOf, PAST as ROWS } from "./following.js";
import { asked, problem, set } from "./here.js";
import { clear } from "./timeline.js";

const PAUSE_MS = 200; // between two drawings

const body = table(the.latest, "Latest changes", "When", "What", "Resource");
body.closest("table").hidden = true; // until there are rows: a head alone says nothing
body.closest(".scroll").append(the.nothing, the.more);
const { filter } = the;
const drawn = new Map(); // rows by what they show, so that the focus stays in them
let stretch = null; // `{from, until}` that is shared; without `until` it is all after `from`
let moment = null; // its changes, the oldest first
let newest = []; // the newest change first
let standing = []; // what is shown
let timer = 0;
let lastDrawn = 0;
let isPaused = false;

export function add(changes) {
  newest = changes.slice(-ROWS).toReversed().concat(newest).slice(0, ROWS);
  schedule();
}

/** What was before all that is shown. */
export function addPast(changes) {
  newest = newest.concat(changes.toReversed()).slice(0, ROWS);
  schedule();
}

export function addGap(after, until) {
  newest = [{ gap: `Changes are missing after ${after}${until ? ` until ${until}` : ""}: see the Change Lists.` }, ...newest];
  add([]);
}

/** The changes of a stretch; of none, the latest. */
export function show(wanted) {
  stretch = wanted;
  moment = stretch && [];
  shows(the.moment, stretch !== null, filter);
  shows(the.more, false, filter); // until it is known that there is more
  the.pause.hidden = stretch !== null; // it stands anyway
  the["changes-title"].textContent = stretch ? "Changes of a stretch" : "Latest changes";
  draw();
  if (stretch) readOn();
}

/** The next changes of the stretch. */
async function readOn() {
  const mine = stretch;
  const { from, until } = stretch;
  try {
    const found = await changesOf({ from: moment.at(-1)?.datetime ?? from });
    if (mine !== stretch) return;
    const within = found.filter(({ datetime }) => !until || datetime <= until);
    moment = moment.concat(within);
    const isAll = within.length < ROWS;
    shows(the.more, !isAll, body.closest(".scroll"));
    the.moment.firstElementChild.textContent =
      `${isAll ? "All" : `The first ${moment.length}`} changes after ${from}${until ? ` up to ${until}` : ""}, the oldest first.`;
    draw();
  } catch ({ message }) {
    if (mine === stretch) problem(message);
  }
}

const firstOf = (changes) => changes.find(({ datetime }) => datetime)?.datetime;

export const last = () => firstOf(newest);

function schedule() {
  if (!isPaused && !moment) timer ||= setTimeout(draw, lastDrawn + PAUSE_MS - performance.now());
}

function draw() {
  [timer, lastDrawn] = [0, performance.now()];
  if (moment || !isPaused) standing = moment ?? newest;
  const wanted = filter.value.trim().toLowerCase();
  const rows = standing.filter((each) => each.gap || `${each.change} ${each.loc}`.toLowerCase().includes(wanted));
  the.share.disabled = !stretch && !firstOf(standing);
  the.nothing.textContent = rows.length ? "" : standing.length ? "None of the changes shown has this in it."
    : stretch ? "No change in this stretch." : "No change yet. The first one appears here.";
  for (const each of rows) if (!drawn.has(each)) drawn.set(each, rowOf(each));
  body.closest("table").hidden = !rows.length;
  keepRows(body, rows.map((each) => drawn.get(each)), filter);
  for (const each of drawn.keys()) if (!standing.includes(each)) drawn.delete(each);
}

/** The address of one change. */
const alone = (datetime) => `?${new URLSearchParams({ set: set.name, change: datetime })}`;

function rowOf({ gap, datetime, change, loc }) {
  if (gap) return make.tr({}, make.td({ colSpan: 3, className: "bad" }, gap));
  const when = make.a({ href: alone(datetime) }, make.time({ dateTime: datetime, title: datetime }, clock(datetime)));
  const made = row(when, tag(change), resource(loc));
  made.cells[2].className = "loc";
  return made;
}

the.pause.onclick = ({ target }) => {
  isPaused = !isPaused;
  target.ariaPressed = isPaused;
  target.textContent = isPaused ? "Go on" : "Pause";
  schedule();
};
filter.oninput = draw;
the.more.onclick = readOn;
the.moment.lastElementChild.href = `?set=${set.name}`;
the.moment.lastElementChild.onclick = (event) => {
  event.preventDefault();
  clear();
};
the.share.onclick = ({ target }) => {
  const [, before] = standing.filter(({ datetime }) => datetime); // from there the newest is the first
  const shared = new URLSearchParams({ set: set.name, ...(stretch ?? { from: before?.datetime ?? set.created }) });
  toClipboard(new URL(`?${shared}`, location).href, target);
};
submits(the.lookup, async () => {
  const loc = filter.value.trim();
  if (!loc) return;
  try {
    const { loc: _, ...known } = await get(`${setPath(set.name)}/resources`, { loc });
    const facts = make.dl({ className: "facts" }, make.dt({}, "Address"), make.dd({}, resource(loc)));
    showFacts(facts, known, known.datetime && alone(known.datetime));
    say(the.known, "");
    the.known.append(make.p({}, "It is there."), facts);
  } catch ({ message }) {
    say(the.known, message, true);
  }
});

if (asked.has("loc")) {
  filter.value = asked.get("loc");
  the.lookup.requestSubmit();
}

if (asked.get("from")) show(Object.fromEntries([...asked].filter(([name]) => ["from", "until"].includes(name))));
