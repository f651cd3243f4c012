/**
 * All sets as a table. A row stays the same element while its numbers change, so that the focus stays too.
 */

import { ago, byId, element, number, tell } from "./dom.js";
import { readersOf, resources } from "./status.js";

export const SHOWN = 50;
const COLUMNS = 5;
const rows = new Map();

export function show({ sets, now, sets_total: total }) {
  const shown = sets.slice(0, SHOWN);
  for (const name of rows.keys()) if (!shown.some((each) => each.name === name)) rows.delete(name);
  const wanted = shown.map((set) => filled(set, Date.parse(now)));
  if (!wanted.length) wanted.push(element("tr", {}, element("td", { colSpan: COLUMNS,
    textContent: byId("find").value ? "No set has this in its name." : "There is no set that you may see: use a token, or add one under Admin." })));
  const body = byId("overview");
  for (const row of [...body.children]) if (!wanted.includes(row)) row.remove();
  wanted.forEach((row, at) => { if (body.children[at] !== row) body.insertBefore(row, body.children[at]); });
  tell(byId("found"), total > SHOWN ? `the first ${SHOWN} of ${number(total)}` : `${number(total)} in all`);
}

function filled(set, now) {
  const row = rows.get(set.name) ?? made(set);
  row.tag.hidden = !set.private;
  const told = [null, number(row.resources ?? set.resources), number(set.changes_today), ago(set.newest, now), number(readersOf(set))];
  told.forEach((text, at) => { if (at && row.cells[at].textContent !== text) row.cells[at].textContent = text; });
  if (row.newest !== set.newest) count(row, set);
  return row;
}

/** The status has those of the last Resource List only. */
async function count(row, { name, newest }) {
  row.newest = newest;
  row.resources = await resources(name).catch(() => null);
  if (row.resources !== null) row.cells[1].textContent = number(row.resources);
}

function made({ name }) {
  const tag = element("span", { className: "tag", textContent: "private" });
  const row = element("tr", {}, element("th", { scope: "row" },
    element("a", { href: `?set=${encodeURIComponent(name)}`, textContent: name }), " ", tag));
  for (let at = 1; at < COLUMNS; at += 1) row.append(element("td", { className: at === 3 ? "" : "number" }));
  rows.set(name, Object.assign(row, { tag }));
  return row;
}
