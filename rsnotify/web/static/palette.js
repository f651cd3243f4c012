/** Ctrl+K finds any view, set, document or resource, and the token, from one field: a combobox with its list, as the
 *  ARIA Authoring Practices describe it. Loaded by every page that has scripts; nothing is made before it is opened. */

import { documentsOf, get, HOME, setPath, SOURCE_DESCRIPTION } from "./api.js";
import { counted, foreign, make, the } from "./dom.js";

const TYPING_MS = 120; // after the last key
const SETS = 20; // shown of those that the hub finds
const WITH_DOCUMENTS = 3; // of these sets
const HOLDING = 20; // sets that are asked whether they have a resource: those that changed last

const here = new URLSearchParams(location.search).get("set");
const key = /Mac|iP/.test(navigator.platform) ? "⌘K" : "Ctrl K";

// --- what can be chosen: `{text, kind, href}`, or `act` in place of the address ---------------------

const fixed = () => [
  ...[...document.querySelectorAll("nav a")].map(({ textContent: text, href }) => ({ text, kind: "view", href })),
  { text: SOURCE_DESCRIPTION[0], kind: "document", href: SOURCE_DESCRIPTION[1] },
  { text: "The HTTP API", kind: "reference", href: `${HOME}api` },
  ...(the.token ? [{ text: the.key.textContent, kind: "rights", act: () => the.token.showPopover() }] : []),
];

const asSet = ({ name }) => ({ text: name, kind: "set", href: `${HOME}?set=${name}` });

const documents = (set) => documentsOf(set).map(([text, href]) => ({ text: `${set} ${text}`, kind: "document", href }));

const isAddress = (text) => /^https?:\/\/./i.test(text);

const newest = async (limit, search = "") => (await get("api/status", { limit, search, order: "newest" })).sets;

async function setsAndDocuments(words) {
  const sets = await newest(SETS, words[0]);
  const own = here && !sets.some(({ name }) => name === here) ? [here] : [];
  const some = words.length ? [...own, ...sets.slice(0, WITH_DOCUMENTS).map(({ name }) => name)] : [];
  return [...sets.map(asSet), ...some.flatMap(documents)];
}

/** The sets that have a resource. */
async function holders(loc) {
  const asked = new Set([...(here ? [here] : []), ...(await newest(HOLDING)).map(({ name }) => name)]);
  const found = await Promise.all([...asked].map((name) => get(`${setPath(name)}/resources`, { loc }).then(() => name, () => null)));
  return found.filter(Boolean).map((name) => ({ text: loc, kind: `in ${name}`, href: `${HOME}?${new URLSearchParams({ set: name, loc })}` }));
}

async function choicesFor(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (choice) => words.every((word) => choice.text.toLowerCase().includes(word));
  const found = isAddress(text) ? await holders(text) : (await setsAndDocuments(words)).filter(fits);
  return [...found, ...fixed().filter(fits)];
}

// --- the field and its list -------------------------------------------------------------------------

const list = make.ul({ id: "choices", role: "listbox", ariaLabel: "What was found" });
const said = make.output();
const field = make.input({ type: "text", role: "combobox", ariaLabel: "Find anything", autocomplete: "off", spellcheck: false, maxLength: 2048,
  placeholder: "A set, a document, the address of a resource, a view…", ariaExpanded: "true", ariaAutoComplete: "list" });
field.setAttribute("aria-controls", list.id);
const dialog = make.dialog({ id: "palette", ariaLabel: "Find anything" }, field, list, said);
let choices = [];
let at = 0; // of the choice that Enter takes
let answered = null; // the text to which these are the choices
let isAwaited = false; // Enter came before them
let turn = 0; // older answers are dropped
let timer = 0;

async function search() {
  turn += 1;
  const mine = turn;
  const text = field.value.trim();
  try {
    const found = await choicesFor(text);
    if (mine !== turn) return;
    show(found, text);
    said.textContent = found.length ? counted(found.length, "choice")
      : isAddress(text) ? `None of the ${HOLDING} sets that changed last has this resource.` : "Nothing has all of this in its name.";
  } catch ({ message }) {
    if (mine !== turn) return;
    isAwaited = false;
    show(fixed(), text);
    said.textContent = `Sets are not found now: ${message}.`;
  }
}

function show(found, text) {
  [choices, answered] = [found, text];
  list.replaceChildren(...found.map(({ text, kind }, each) => make.li({ id: `choice-${each}`, role: "option",
    onclick: () => take(each), onmousemove: () => point(each) }, foreign(text), make.small({}, kind))));
  point(0);
  if (isAwaited && text === field.value.trim()) take(0); // an answer to an older text is not what is meant
}

function point(to) {
  list.children[at]?.setAttribute("aria-selected", "false");
  at = to;
  list.children[at]?.setAttribute("aria-selected", "true");
  list.children[at]?.scrollIntoView({ block: "nearest" });
  field.setAttribute("aria-activedescendant", choices.length ? `choice-${at}` : "");
}

/** What was pointed to before the last letter is not what is meant. */
function enter() {
  isAwaited = answered !== field.value.trim();
  if (!isAwaited) take(at);
}

function take(each) {
  isAwaited = false;
  const { href, act } = choices[each] ?? {};
  if (!href && !act) return;
  dialog.close();
  if (act) act();
  else location.assign(href);
}

const STEPS = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 };
field.onkeydown = (event) => {
  const step = STEPS[event.key];
  if (event.isComposing || !(step || event.key === "Enter")) return;
  event.preventDefault();
  if (!step) enter();
  else if (Math.abs(step) === 1) point((at + step + choices.length) % (choices.length || 1));
  else point(Math.max(0, Math.min(choices.length - 1, at + step)));
};
field.oninput = () => {
  isAwaited = false;
  clearTimeout(timer);
  timer = setTimeout(search, TYPING_MS);
};
dialog.onclick = ({ target }) => { if (target === dialog) dialog.close(); }; // beside it

function toggle() {
  if (dialog.open) {
    dialog.close();
    return;
  }
  document.body.append(dialog);
  dialog.showModal();
  field.select();
  search();
}

document.addEventListener("keydown", (event) => {
  if (!(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey || event.key.toLowerCase() !== "k") return;
  event.preventDefault();
  toggle();
});
document.querySelector("header nav").after(make.button({ id: "anything", type: "button", onclick: toggle, ariaKeyShortcuts: "Control+K Meta+K" },
  "Find ", make.kbd({}, key)));
