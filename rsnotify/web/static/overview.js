/**
 * All sets as a table. A row stays the same element while its numbers change, so that the focus stays too.
 */

import { ago, byId, element, number, row, table, tell } from "./dom.js";
import { readersOf, resources } from "./status.js";

export const SHOWN = 50;
const rows = new Map();
const body = table(byId("overview"), "Sets", "Set", "Resources", "Changes today", "Last change", "Readers now");

export function show({ sets, now, sets_total: total }) {
  const wanted = sets.slice(0, SHOWN).map((set) => filled(set, Date.parse(now)));
  for (const [name, each] of rows) if (!wanted.includes(each)) rows.delete(name);
  if (!wanted.length) {
    wanted.push(row(byId("find").value ? "No set has this in its name."
      : "There is no set that you may see: use a token, or add one under Admin."));
    wanted[0].cells[0].colSpan = 5;
  }
  for (const each of [...body.children]) if (!wanted.includes(each)) each.remove();
  wanted.forEach((each, at) => { if (body.children[at] !== each) body.insertBefore(each, body.children[at] ?? null); });
  tell(byId("found"), total > SHOWN ? `the first ${SHOWN} of ${number(total)}` : `${number(total)} in all`);
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
  found.cells[0].replaceWith(element("th", { scope: "row" },
    element("a", { href: `?set=${encodeURIComponent(name)}`, textContent: name }), " ",
    element("span", { className: "tag", textContent: "private" })));
  return found;
}
