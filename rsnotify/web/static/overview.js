/** All sets as a table, those first that changed last. A row stays the same element; the focus stays in the table. */

import { address } from "./api.js";
import { ago, copyable, counted, drawn, isStill, keepRows, make, number, row, shows, table, tag, say, the } from "./dom.js";
import { problem, rights } from "./here.js";
import { live, told } from "./landing.js";
import { byName, lastFirst, ordering } from "./order.js";
import { count, readersOf, watch } from "./status.js";

const SHOWN = 50;
const TYPING_MS = 200; // after the last key
const SAMPLES = 40; // of the line of a set, one for each answer of the hub
const [WIDTH, HEIGHT] = [80, 20];

const COLUMNS = [ // how two rows are ordered; the hub itself orders all sets by name and by the last change
  ["Set", byName],
  ["Last change", (one, other) => lastFirst(one.said, other.said)],
  ["Changes today", (one, other) => other.said.changes_today - one.said.changes_today],
  ["Resources", (one, other) => (other.cells[RESOURCES].value ?? 0) - (one.cells[RESOURCES].value ?? 0)],
  ["Readers now", (one, other) => readersOf(other.said) - readersOf(one.said)],
  "Since you opened this page",
];
const [, NEWEST, , RESOURCES] = COLUMNS.keys();

const order = ordering(COLUMNS, NEWEST, () => {
  arrange([...body.rows], false);
  look();
});
const body = table(the.overview, "Sets", ...order.heads);
body.closest(".scroll").hidden = true; // until there are rows: a head alone says nothing
const { find } = the;
let timer = 0;

const arrange = (rows, isHeld) => keepRows(body, order.arranged(rows, body, isHeld), find);

function show({ sets, now, sets_total: total }) {
  arrange(sets.slice(0, SHOWN).map((set) => filled(set, Date.parse(now))));
  const isEmpty = !total && !find.value;
  if (!find.value && order.asked() === "newest") live(sets);
  told(sets);
  the["no-sets"].hidden = !isEmpty;
  shows(body.closest(".scroll"), sets.length > 0, find);
  say(the.found, total > SHOWN ? `${order.asked() === "name" ? `the first ${SHOWN}` : `the ${SHOWN} that changed last`} of ${number(total)}${order.onlyOf(SHOWN)}`
    : total ? `${number(total)} in all` : find.value ? "No set has this in its name." : "");
}

function filled(set, now) {
  const found = [...body.rows].find(({ name }) => name === set.name) ?? made(set.name);
  sample(found, set);
  found.said = set;
  found.querySelector(".tag").hidden = !set.private;
  const texts = { 1: ago(set.newest, now), 2: number(set.changes_today), 4: number(readersOf(set)) };
  for (const [at, text] of Object.entries(texts)) found.cells[at].textContent = text;
  const inWords = () => {
    found.words.textContent = [
      counted(found.cells[RESOURCES].value, "resource"), counted(readersOf(set), "reader")].map((each) => each.replace(" ", "\u00a0")).join(", ");
  };
  inWords();
  count(found.cells[RESOURCES], set).then(inWords);
  return found;
}

const spark = () => drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", class: "spark" }, drawn("polyline"));

function made(name) {
  const words = make.span();
  const pictures = [spark(), spark()]; // in a column of its own, and where that has no room below the name
  const found = Object.assign(row("", "", "", "–", "", pictures[0]), { name, words, pictures, samples: [] });
  found.cells[0].replaceWith(make.th({ scope: "row" },
    make.i({ className: "pulse" }), make.a({ href: `?set=${name}` }, name), " ", tag("private"),
    make.div({ className: "rest" }, words, pictures[1])));
  return found;
}

/** What came since the last answer goes on with the line; the dot before the name beats once. */
function sample(found, { changes_today: today }) {
  const came = found.said ? Math.max(0, today - found.said.changes_today) : 0;
  found.samples = [...found.samples, came].slice(-SAMPLES);
  if (came && !isStill()) found.querySelector(".pulse").animate({ opacity: [1, .25], scale: [1.6, 1] }, 1200);
  const most = Math.max(1, ...found.samples);
  const points = found.samples.map((each, at) =>
    `${WIDTH - (found.samples.length - 1 - at) * (WIDTH / (SAMPLES - 1))},${HEIGHT - 1 - each / most * (HEIGHT - 2)}`);
  found.seen = (found.seen ?? 0) + came;
  for (const picture of found.pictures) {
    picture.firstElementChild.setAttribute("points", points.join(" "));
    picture.ariaLabel = counted(found.seen, "change");
  }
}

const look = () => watch(() => ({ limit: SHOWN, search: find.value.trim(), order: order.asked() }), (status) => {
  problem(status ? "" : "The hub does not answer; trying again.");
  if (status) show(status);
});

find.oninput = () => {
  clearTimeout(timer);
  timer = setTimeout(look, TYPING_MS);
};

const hub = address("").replace(/\/$/, "");
the["no-sets"].append(
  make.p({}, rights.admin ? "No set yet. Two lines make one, and its first change:"
    : "There is no set that you may see. Use a token; or make a set, and its first change:"),
  copyable("make a set", `rsnotify sets add first --url ${hub}`, "shell"),
  copyable("publish a change", `rsnotify publish first https://example.org/ --url ${hub}`, "shell"),
  make.p({ className: "help" }, "In a clone, after ", make.code({}, "make run"), ": ", make.code({}, ". .venv/bin/activate"), " and ",
    make.code({}, "export RSNOTIFY_TOKEN=$(cat data/admin-token)")));
look();
