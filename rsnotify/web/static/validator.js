/** Validates a document; one of this hub the page itself reads. What is wrong is marked where it stands. */

import { documentsOf, HOME, read, send, SOURCE_DESCRIPTION } from "./api.js";
import { counted, make, number, submits, say, the, toClipboard } from "./dom.js";
import { asked, set } from "./here.js";
import { placesOf } from "./places.js";
import { drawSource } from "./source.js";

const AROUND = 60; // characters beside a fault that are shown
const FAULT = 200; // and of it
const { address, document: pasted } = the.validate.elements;
const { gutter } = the;
let faulty = new Set(); // lines
let turn = 0; // older answers are dropped

submits(the.validate, validate);
pasted.oninput = () => {
  address.value = "";
  faulty.clear();
  numberLines();
};
pasted.onscroll = () => { gutter.scrollTop = pasted.scrollTop; };
the["share-document"].onclick = ({ target }) => toClipboard(location.href, target);
if (set) {
  the["own-documents"].replaceChildren(...[...documentsOf(set.name), SOURCE_DESCRIPTION].map(([label, value]) => make.option({ value, label })));
}
the["draw-source"].onclick = async ({ target }) => {
  if (target.ariaDisabled) return;
  target.ariaDisabled = "true";
  await drawSource(verdictOn);
  target.ariaDisabled = null;
};
numberLines();

// A link fills in the address. What the page itself reads is judged at once; what the hub would fetch waits for a hand:
// a stranger's link must not send it anywhere.
const linked = asked.get("url") ?? asked.get("document");
if (linked !== null) {
  address.value = URL.canParse(linked, HOME) ? new URL(linked, HOME).href : linked;
  if (isOwn(address.value)) validate();
  else say(the.verdict, "This address was in the link that you opened. If you trust it, press Validate: the hub then fetches it.");
}

function isOwn(url) {
  return url.startsWith(HOME.href);
}

async function validate() {
  turn += 1;
  const mine = turn;
  show("checking…");
  share();
  const shown = await judged().then((verdict) => () => showVerdict(verdict), ({ message }) => () => show(message, true));
  if (mine === turn) shown();
}

/** The address of the page names the document. */
function share() {
  const url = address.value.trim();
  const named = url ? { url: isOwn(url) ? url.slice(HOME.href.length) : url } : {};
  history.replaceState(history.state, "", `?${new URLSearchParams({ view: "validator", ...(set ? { set: set.name } : {}), ...named })}`);
  the["share-document"].disabled = !url;
}

async function judged() {
  const url = address.value.trim();
  const text = isOwn(url) ? await read(url) : url ? "" : pasted.value;
  if (pasted.value !== text) pasted.value = text;
  return url && !isOwn(url) ? verdictOn(JSON.stringify({ url }), "json") : verdictOn(text);
}

async function verdictOn(body, type = "xml") {
  return (await send("POST", `${HOME.href}api/validate`, { body, headers: { "Content-Type": `application/${type}` } })).json();
}

function showVerdict({ valid, count, violations }) {
  const first = count > violations.length ? `; the first ${number(violations.length)}` : "";
  show(valid ? "Valid: nothing is wrong with it." : `${counted(count, "violation")}${first}:`, !valid, violations);
}

function show(verdict, isBad, violations = []) {
  const places = pasted.value ? placesOf(pasted.value, violations) : [];
  faulty = new Set(places.filter(Boolean).map(({ line }) => line));
  numberLines();
  say(the.verdict, verdict, isBad);
  the.violations.replaceChildren(...violations.map(({ path, message, clause, mend }, at) =>
    make.li({}, make.strong({}, message), ` ${mend} `, make.span({ className: "help" }, `${clause}, at ${path}`),
      ...(places[at] ? marked(places[at]) : []))));
}

/** The fault within what stands around it, and a button that leads to it. */
function marked({ line, column, begin, end }) {
  const text = pasted.value;
  const last = Math.min(end, begin + FAULT);
  const before = text.slice(Math.max(0, begin - AROUND), begin).split("\n").at(-1);
  const after = last < end ? "…" : text.slice(end, end + AROUND).split("\n")[0];
  const go = make.button({ type: "button", className: "digest", ariaLabel: `Go to line ${line}, column ${column}`, onclick: () => {
    pasted.focus();
    pasted.setSelectionRange(begin, end);
    const height = pasted.scrollHeight / text.split("\n").length;
    pasted.scrollTop = Math.max(0, (line - 4) * height);
  } }, `${line}:${column}`);
  return [make.div({ className: "fault" }, go, make.code({}, before, make.mark({}, text.slice(begin, last)), after))];
}

/** A number beside each line; those with a fault stand out. */
function numberLines() {
  const count = pasted.value.split("\n").length;
  const parts = [];
  let from = 1;
  const upTo = (end) => { if (from <= end) parts.push(`${Array.from({ length: end - from + 1 }, (_, at) => from + at).join("\n")}\n`); };
  for (const line of [...faulty].filter((each) => each <= count).sort((one, other) => one - other)) {
    upTo(line - 1);
    parts.push(make.b({ className: "bad" }, `${line}\n`));
    from = line + 1;
  }
  upTo(count);
  gutter.replaceChildren(...parts);
  gutter.style.width = `${String(count).length + 2}ch`;
  gutter.scrollTop = pasted.scrollTop;
}
