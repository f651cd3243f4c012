/** Before something is done that others see or that is lost: a question in a dialog, or some seconds to undo it. */

import { button, foreign, make, submits, the } from "./dom.js";

const SECONDS = 8;
const NOT_DONE = "rsnotify-not-done"; // what was waiting when the page was left
const waiting = new Map(); // by what is going to be done: `{undo, end}`

/** Whether it is meant; the focus begins where nothing is done. Where there is a `name`, it has to be typed. */
export function isMeant(question, means, yes, { no = "Cancel", name = "" } = {}) {
  const close = (answer) => dialog.close(answer);
  const field = make.input({ autocomplete: "off", required: true, spellcheck: false });
  const form = make.form({}, make.div({ className: "row" },
    make.button({}, yes), make.button({ type: "button", onclick: () => close(""), autofocus: !name }, no)));
  if (name) form.prepend(make.label({}, `Type ${name} to go on`, field));
  const dialog = make.dialog({ ariaLabel: question }, make.h2({}, question), make.p({ dir: "auto" }, means), form);
  const judge = () => field.setCustomValidity(!name || field.value === name ? "" : `This is not ${name}.`);
  field.oninput = judge;
  judge();
  submits(form, () => close("yes"));
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((then) => {
    dialog.onclose = () => {
      dialog.remove();
      then(dialog.returnValue === "yes");
    };
  });
}

/** Do it when some seconds are over, unless it is undone or the page is left before. */
export function unlessUndone(verb, name, work) {
  const words = `${verb} ${name}`;
  const pressed = document.activeElement;
  waiting.get(words)?.undo.focus();
  if (waiting.has(words)) return;
  let left = SECONDS;
  const count = make.span({ className: "count", ariaHidden: "true" }, `${left} s`);
  const undo = button("Undo", words, () => end());
  const place = make.p({}, `${verb} `, foreign(name), " in ", count, ", if this page stays open. ", undo);
  const end = () => {
    clearInterval(timer);
    waiting.delete(words);
    if (place.contains(document.activeElement)) pressed.focus();
    place.remove();
  };
  const timer = setInterval(() => {
    left -= 1;
    count.textContent = `${left} s`;
    if (left > 0) return;
    end();
    work();
  }, 1000);
  waiting.set(words, { undo, end });
  the["about-to"].append(place);
  undo.focus();
}

/** What was not done because the page was left; it is told once. */
export function notDone() {
  const found = sessionStorage.getItem(NOT_DONE);
  sessionStorage.removeItem(NOT_DONE);
  return found;
}

addEventListener("pagehide", () => { // also where the browser keeps the page to come back to
  if (waiting.size) sessionStorage.setItem(NOT_DONE, [...waiting.keys()].join(", "));
  for (const { end } of [...waiting.values()]) end();
});
