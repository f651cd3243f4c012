/**
 * The validator: a document that is named, or one that was pasted. The page itself reads one of this hub.
 */

import { address, HOME, read, send } from "./api.js";
import { byId, counted, element, number, tell } from "./dom.js";

const form = byId("validate");
let asked = 0; // what was asked for last is shown, whichever answer comes last
let opened = "";

form.onsubmit = (event) => {
  event.preventDefault();
  validate();
};

/** The documents to choose from. */
export function offer(documents) {
  byId("own-documents").replaceChildren(...documents.map(([label, value]) => element("option", { value, label })));
}

/** Validate the document that the address of the page names. */
export function open(url) {
  if (!url || opened === url) return;
  opened = url;
  form.address.value = new URL(url, HOME).href;
  validate();
}

async function validate() {
  asked += 1;
  const turn = asked;
  show("checking…");
  const shown = await judged().then((verdict) => () => showVerdict(verdict), ({ message }) => () => show(message, true));
  if (turn === asked) shown();
}

async function judged() {
  const url = form.address.value.trim();
  const isOwn = url.startsWith(HOME.href);
  if (isOwn) form.document.value = await read(url);
  const [type, body] = url && !isOwn ? ["json", JSON.stringify({ url })] : ["xml", form.document.value];
  return (await send("POST", address("api/validate"), { body, headers: { "Content-Type": `application/${type}` } })).json();
}

function showVerdict({ valid, count, violations }) {
  const first = count > violations.length ? `; the first ${number(violations.length)}` : "";
  show(valid ? "Valid: nothing is wrong with it." : `${counted(count, "violation")}${first}:`, !valid, violations);
}

function show(verdict, isBad = false, violations = []) {
  tell(byId("verdict"), verdict, isBad);
  byId("violations").replaceChildren(...violations.map(({ path, message, clause, mend }) => element("li", {},
    element("strong", { textContent: message }), ` ${mend} `,
    element("span", { className: "help", textContent: `${clause}, at ${path}` }))));
}
