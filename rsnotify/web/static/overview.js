/**
 * All sets as a table. A row stays the same element while its numbers change, so that the focus stays too.
 */

import { ago, make, number, row, table, tell, the } from "./dom.js";
import { problem } from "./here.js";
import { readersOf, resources, watch } from "./status.js";

const SHOWN = 50;
const TYPING_MS = 200; // after the last key, until sets are looked for
const rows = new Map();
const body = table(the.overview, "Sets", "Set", "Resources", "Changes today", "Last change", "Readers now");
const find = the.find;
let timer = 0;

function show({ sets, now, sets_total: total }) {
  const wanted = sets.slice(0, SHOWN).map((set) => filled(set, Date.parse(now)));
  for (const [name, each] of rows) if (!wanted.includes(each)) rows.delete(name);
  if (!wanted.length) {
    wanted.push(row(find.value ? "No set has this in its name."
      : "There is no set that you may see: use a token, or add one under Admin."));
    wanted[0].cells[0].colSpan = 5;
  }
  for (const each of [...body.children]) if (!wanted.includes(each)) each.remove();
  wanted.forEach((each, at) => { if (body.children[at] !== each) body.insertBefore(each, body.children[at] ?? null); });
  tell(the.found, total > SHOWN ? `the first ${SHOWN} of ${number(total)}` : `${number(total)} in all`);
}

function filled(set, now) {
  const { name, newest } = set;
  if (!rows.has(name)) rows.set(name, made(name));
  const found = rows.get(name);
  found.querySelector(".tag").hidden = !set.private;
  const texts = [number(found.resources ?? set.resources), number(set.changes_today), ago(newest, now), number(readersOf(set))];
  texts.forEach((text, at) => { if (found.cells[at + 1].textContent !== text) found.cells[at + 1].textContent = text; });
  if (found.newest !== newest) count(found, name, newest);
  return found;
}

/** The status has those of the last Resource List only. */
async function count(found, name, newest) {
  found.newest = newest;
  found.resources = await resources(name).catch(() => null);
  if (found.resources !== null) found.cells[1].textContent = number(found.resources);
}

function made(name) {
  const found = row("", "", "", "", "");
  found.cells[0].replaceWith(make.th({ scope: "row" },
    make.a({ href: `?set=${encodeURIComponent(name)}` }, name), " ", make.span({ className: "tag" }, "private")));
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
