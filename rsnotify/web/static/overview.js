/** All sets as a table. A row stays the same element, so that the focus stays in it. */

import { ago, make, number, row, table, tag, say, the } from "./dom.js";
import { problem } from "./here.js";
import { count, readersOf, watch } from "./status.js";

const SHOWN = 50;
const TYPING_MS = 200; // after the last key
const body = table(the.overview, "Sets", "Set", "Resources", "Changes today", "Last change", "Readers now");
const { find } = the;
let timer = 0;

function show({ sets, now, sets_total: total }) {
  const wanted = sets.slice(0, SHOWN).map((set) => filled(set, Date.parse(now)));
  for (const each of [...body.rows]) if (!wanted.includes(each)) each.remove();
  wanted.forEach((each, at) => { if (body.rows[at] !== each) body.insertBefore(each, body.rows[at] ?? null); });
  say(the.found, total > SHOWN ? `the first ${SHOWN} of ${number(total)}` : total ? `${number(total)} in all`
    : find.value ? "No set has this in its name."
      : "There is no set that you may see: use a token, or add one under Admin.");
}

function filled(set, now) {
  const found = [...body.rows].find(({ name }) => name === set.name) ?? made(set.name);
  found.querySelector(".tag").hidden = !set.private;
  const texts = [number(set.changes_today), ago(set.newest, now), number(readersOf(set))];
  texts.forEach((text, at) => { found.cells[at + 2].textContent = text; });
  count(found.cells[1], set);
  return found;
}

function made(name) {
  const found = Object.assign(row("", "–", "", "", ""), { name });
  found.cells[0].replaceWith(make.th({ scope: "row" },
    make.a({ href: `?set=${name}` }, name), " ", tag("private")));
  return found;
}

const look = () => watch(() => ({ limit: SHOWN + 1, search: find.value.trim() }), (status) => {
  problem(status ? "" : "The hub does not answer; trying again.");
  if (status) show(status);
});

find.oninput = () => {
  clearTimeout(timer);
  timer = setTimeout(look, TYPING_MS);
};
look();
