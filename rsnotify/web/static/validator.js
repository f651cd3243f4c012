/** Validates a document; one of this hub the page itself reads. */

import { documentsOf, HOME, read, send, SOURCE_DESCRIPTION } from "./api.js";
import { counted, make, number, submits, say, the } from "./dom.js";
import { asked, set } from "./here.js";

const { address, document: pasted } = the.validate.elements;
let turn = 0; // older answers are dropped

submits(the.validate, validate);
pasted.oninput = () => { address.value = ""; };
if (set) {
  the["own-documents"].replaceChildren(...[...documentsOf(set.name), SOURCE_DESCRIPTION].map(([label, value]) => make.option({ value, label })));
}
if (asked.has("document")) {
  address.value = new URL(asked.get("document"), HOME).href;
  validate();
}

async function validate() {
  turn += 1;
  const mine = turn;
  show("checking…");
  const shown = await judged().then((verdict) => () => showVerdict(verdict), ({ message }) => () => show(message, true));
  if (mine === turn) shown();
}

async function judged() {
  const url = address.value.trim();
  const isOwn = url.startsWith(HOME.href);
  if (isOwn) pasted.value = await read(url);
  const [type, body] = url && !isOwn ? ["json", JSON.stringify({ url })] : ["xml", pasted.value];
  const headers = { "Content-Type": `application/${type}` };
  return (await send("POST", `${HOME.href}api/validate`, { body, headers })).json();
}

function showVerdict({ valid, count, violations }) {
  const first = count > violations.length ? `; the first ${number(violations.length)}` : "";
  show(valid ? "Valid: nothing is wrong with it." : `${counted(count, "violation")}${first}:`, !valid, violations);
}

function show(verdict, isBad, violations = []) {
  say(the.verdict, verdict, isBad);
  the.violations.replaceChildren(...violations.map(({ path, message, clause, mend }) =>
    make.li({}, make.strong({}, message), ` ${mend} `, make.span({ className: "help" }, `${clause}, at ${path}`))));
}
