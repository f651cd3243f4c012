/** The sets, as the admin has them: a row says what each takes, and opens into the form of its options. */

import { ask, get, setPath } from "./api.js";
import { act } from "./acts.js";
import { isMeant } from "./asking.js";
import { ago, button, counted, make, number, row, size, tag, the } from "./dom.js";
import { opens } from "./fields.js";
import { set } from "./here.js";
import { listing } from "./listing.js";
import { byName, lastFirst, ordering } from "./order.js";
import { setForm } from "./set_form.js";
import { readersOf, watch } from "./status.js";

const COLUMNS = [
  ["Set", byName],
  ["Changes today", (one, other) => other.changes_today - one.changes_today],
  ["Last change", lastFirst],
  ["Readers now", (one, other) => readersOf(other) - readersOf(one)],
  ["Takes of Redis", (one, other) => (other.bytes ?? 0) - (one.bytes ?? 0)],
  "Actions",
];
const [, , NEWEST] = COLUMNS.keys();
const order = ordering(COLUMNS, NEWEST, () => sets.again());
const sets = listing("set-table", "Sets", order.heads, look, { key: ({ form, name }) => (form ? `form ${name}` : name), made, fill });
const open = new Map(); // the forms, by set
let shown = []; // what the hub has said last
let total = 0;
let told = () => {};

/** `by` is told each status, too. */
export function watchSets(by) {
  told = by;
  if (set) sets.find.value = set.name;
  look();
}

function look() {
  watch(() => ({ ...sets.asked(), order: order.asked() }), (status) => {
    told(status);
    if (!status) return;
    ({ sets: shown, sets_total: total } = status);
    draw(Date.parse(status.now));
  });
}

/** A form that is open stays, wherever its set has gone. */
function draw(now = Date.now()) {
  const here = new Set(shown.map(({ name }) => name));
  const forms = (name) => (open.has(name) ? [{ name, form: open.get(name) }] : []);
  const lost = [...open.keys()].filter((name) => !here.has(name)).flatMap(forms);
  const rows = order.arranged(shown, sets.body).flatMap((each) => [{ ...each, now }, ...forms(each.name)]);
  sets.show([...lost, ...rows], total, `, by ${order.asked() === "name" ? "name" : "last change"}${order.onlyOf(shown.length)}`);
}

function made({ name, form }) {
  if (form) return make.tr({ className: "opened" }, make.td({ colSpan: 6 }, form));
  const found = Object.assign(row("", "", "", "", "", [
    button("Edit", name, ({ target }) => edit(name, target)), " ", button("Remove", name, () => remove(name))]), { name });
  found.cells[0].replaceWith(make.th({ scope: "row" }, make.a({ href: `?set=${name}` }, name), " ", tag("private")));
  return found;
}

function fill(found, { form, ...it }) {
  if (form) return;
  found.querySelector(".tag").hidden = !it.private;
  const takes = it.bytes === null ? "–" : `${size(it.bytes)}${it.max_bytes ? ` of ${size(it.max_bytes)}` : ""}`;
  [number(it.changes_today), ago(it.newest, it.now), number(readersOf(it)), takes]
    .forEach((text, at) => { found.cells[at + 1].textContent = text; });
}

async function edit(name, opener) {
  if (!open.has(name)) {
    const [record] = await get("api/sets", { name });
    open.set(name, setForm(record, (saved) => close(name, opener, saved)));
    draw();
  }
  open.get(name).querySelector("input").focus();
}

function close(name, opener, saved) {
  open.delete(name);
  draw();
  opener.focus();
  if (saved) act(`Save ${name}`, look);
}

opens(the["add-set"], the["new-set"], (close_) => setForm(null, (saved) => {
  close_();
  if (saved) act(`Save ${saved}`, look);
}));

const remove = (name) => act(`Remove ${name}`, async () => {
  if (!await isMeant(`Remove the set ${name}?`, await lossOf(name), "Remove it", { no: "Keep it", name })) return false;
  await ask("DELETE", setPath(name));
  open.delete(name);
  look();
});

async function lossOf(name) {
  const { sets: [found] } = await get("api/status", { name, limit: 1 });
  if (!found) throw new Error(`there is no set ${name}`);
  const { resources } = await get(`${setPath(name)}/resources`);
  const readers = readersOf(found);
  return `All its changes are lost at once and for good, and what the hub knows of ${counted(resources, "resource")}. Its
    documents and channels end, for ${counted(readers, "reader")} that ${readers === 1 ? "is" : "are"} connected now, and for
    its WebSub subscribers.`;
}
