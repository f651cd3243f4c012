/** Fields of a form: each with its help, and with what the hub says is wrong beside it. */

import { make } from "./dom.js";

let made = 0; // so that each has an id of its own

/** `{name, label, help, input}`; a box to tick stands before its label. */
export function field({ name, label, help = "", input }) {
  made += 1;
  const [isBox, id] = [input.type === "checkbox", `${name}-${made}`];
  Object.assign(input, { name, id });
  input.setAttribute("aria-describedby", `${id}-help ${id}-wrong`);
  const words = make.label({ htmlFor: id }, label);
  return make.div({ className: isBox ? "field box" : "field" }, ...(isBox ? [input, words] : [words, input]),
    make.span({ className: "help", id: `${id}-help` }, help), make.span({ className: "bad wrong", id: `${id}-wrong` }));
}

/** The button opens the form there, or leads to it; `made` is given what closes it. */
export function opens(button, place, made) {
  const close = () => {
    place.replaceChildren();
    button.focus();
  };
  button.onclick = () => {
    if (!place.firstChild) place.append(made(close));
    place.querySelector("input").focus();
  };
}

/** Say it beside the field that it names first, else at the form's foot. `words` are other names of fields. */
export function blame(form, message, words = {}) {
  forgive(form);
  const named = [...form.elements].filter(({ name }) => name).map((input) => {
    const at = message.search(new RegExp(`\\b${words[input.name] ?? input.name}\\b`));
    return { input, at: at < 0 ? Infinity : at };
  }).sort((one, other) => one.at - other.at);
  if (!named.length || named[0].at === Infinity) {
    form.querySelector("output").textContent = message;
    form.querySelector("output").classList.add("bad");
    return;
  }
  const { input } = named[0];
  wrong(input, message);
  input.closest("details")?.setAttribute("open", "");
  input.focus();
}

/** What is wrong with this field, or nothing. */
export function wrong(input, message) {
  document.getElementById(`${input.id}-wrong`).textContent = message;
  input.ariaInvalid = message ? "true" : null;
}

export function forgive(form) {
  for (const each of form.querySelectorAll(".wrong, output")) each.textContent = "";
  for (const each of form.querySelectorAll("[aria-invalid]")) each.ariaInvalid = null;
}
