/** The latest changes of the set as a table, or those after a shared moment. */

import { get, setPath } from "./api.js";
import { clock, listed, make, resource, row, submits, table, tag, say, the, toClipboard } from "./dom.js";
import { history, PAST as ROWS } from "./following.js";
import { asked, problem, set } from "./here.js";

const PAUSE_MS = 200; // between two drawings

const body = table(the.latest, "Latest changes", "When", "What", "Resource");
body.closest(".scroll").append(the.nothing);
const { filter } = the;
const from = asked.get("from"); // the moment that is shared
let moment = null; // the changes after it, the oldest first
let newest = []; // the newest change first
let standing = []; // what is shown
let timer = 0;
let drawn = 0;
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

const firstOf = (changes) => changes.find(({ datetime }) => datetime)?.datetime;

export const last = () => firstOf(newest);

function schedule() {
  if (!isPaused && !moment) timer ||= setTimeout(draw, drawn + PAUSE_MS - performance.now());
}

function draw() {
  [timer, drawn] = [0, performance.now()];
  if (moment || !isPaused) standing = moment ?? newest;
  const wanted = filter.value.trim().toLowerCase();
  const rows = standing.filter((each) => each.gap || `${each.change} ${each.loc}`.toLowerCase().includes(wanted));
  the.share.disabled = !firstOf(standing);
  the.nothing.textContent = rows.length ? "" : standing.length ? "None of those shown has this in it."
    : "No change yet. The first one appears here.";
  body.replaceChildren(...rows.map(rowOf));
}

function rowOf({ gap, datetime, change, loc }) {
  if (gap) return make.tr({}, make.td({ colSpan: 3, className: "bad" }, gap));
  const alone = `?${new URLSearchParams({ set: set.name, change: datetime })}`;
  const when = make.a({ href: alone }, make.time({ dateTime: datetime, title: datetime }, clock(datetime)));
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
the.share.onclick = ({ target }) => {
  const [, before] = standing.filter(({ datetime }) => datetime); // from there the newest is the first
  const shared = new URLSearchParams({ set: set.name, from: from ?? before?.datetime ?? set.created });
  toClipboard(new URL(`?${shared}`, location).href, target);
};
submits(the.lookup, async () => {
  const loc = filter.value.trim();
  if (!loc) return;
  try {
    const { loc: _, ...known } = await get(`${setPath(set.name)}/resources`, { loc });
    say(the.known, `It is there: ${listed(known)}`);
  } catch ({ message }) {
    say(the.known, message, true);
  }
});

if (asked.has("loc")) {
  filter.value = asked.get("loc");
  the.lookup.requestSubmit();
}

if (from) {
  history({ from }).then((changes) => {
    moment = changes;
    the.moment.prepend(`${changes.length === ROWS ? `The first ${ROWS}` : "All"} changes after ${from}, the oldest first. `);
    the.moment.firstElementChild.href = `?set=${set.name}`;
    the.moment.hidden = false;
    draw();
  }, ({ message }) => problem(message));
}
