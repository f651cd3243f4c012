/**
 * The validator: a document of this hub, one that is named, or one that was pasted.
 */

import { address, HOME, read, send } from "./api.js";
import { byId, element, tell } from "./dom.js";

let asked = 0; // what was asked for last is shown, whichever answer comes last

export function watchForm() {
  const form = byId("validate");
  byId("own-document").onchange = ({ target }) => { if (target.value) fetchOwn(target.value); };
  form.onsubmit = async (event) => {
    event.preventDefault();
    validate(form);
  };
}

function validate(form) {
  show("checking…");
  const named = form.address.value.trim();
  inTurn(() => (named ? check("application/json", JSON.stringify({ url: named }))
    : check("application/xml", form.document.value)), showVerdict, (error) => show(error.message, true));
}

/** The documents to choose from. */
export function offer(documents) {
  byId("own-document").replaceChildren(...[["none: the text below", ""], ...documents].map(
    ([textContent, value]) => element("option", { value, textContent })));
}

/** Validate a document of this hub that the address of the page names. */
export function open(url) {
  if (!url || byId("validate").opened === url) return;
  byId("validate").opened = url;
  fetchOwn(new URL(url, HOME).href, () => validate(byId("validate")));
}

/** Show what was asked for, unless something else has been asked for since. */
async function inTurn(work, done, failed) {
  asked += 1;
  const turn = asked;
  const shown = await work().then((answer) => () => done(answer), (error) => () => failed(error));
  if (turn === asked) shown();
}

function show(verdict, isBad = false) {
  tell(byId("verdict"), verdict, isBad);
  byId("violations").replaceChildren();
}

function fetchOwn(url, then = () => show("")) {
  const form = byId("validate");
  form.address.value = "";
  inTurn(() => read(url), (text) => {
    form.document.value = text;
    then();
  }, (error) => {
    form.document.value = "";
    show(`This document cannot be had: ${error.message}`, true);
  });
}

async function check(type, body) {
  const headers = { "Content-Type": type };
  const answer = await send("POST", address("api/validate"), { body, headers });
  return answer.json();
}

function showVerdict({ valid, count, violations }) {
  tell(byId("verdict"), valid ? "Valid: nothing is wrong with it." : found(count, violations.length), !valid);
  byId("violations").replaceChildren(...violations.map(shown));
}

function found(count, named) {
  const told = `${count.toLocaleString("en")} violation${count === 1 ? "" : "s"}`;
  return count > named ? `${told}; the first ${named.toLocaleString("en")}:` : `${told}:`;
}

const shown = ({ path, message, clause, mend }) => element("li", {},
  element("strong", { textContent: message }), ` ${mend} `,
  element("span", { className: "help", textContent: `${clause}, at ${path}` }));
