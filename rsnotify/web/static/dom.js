/** Elements, by id and new ones. Text is only set as text: what a stranger wrote never becomes markup. */

import { partsOf } from "./code.js";

const DIGEST = 16; // characters of a digest that are shown

export const the = new Proxy({}, { get: (_, id) => document.getElementById(id) });

/** A new element: `make.a({ href }, "text")`. */
export const make = new Proxy({}, { get: (_, name) => (properties, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
} });

/** A new element of SVG. */
export function drawn(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [each, value] of Object.entries(attributes)) made.setAttribute(each, value);
  made.append(...children);
  return made;
}

/** Whether nobody looks, or nothing is to move. */
export const isStill = () => document.hidden || matchMedia("(prefers-reduced-motion: reduce)").matches;

/** A stranger's text, which may run from right to left. */
export const foreign = (text) => make.bdi({ title: text }, text);

export const link = (address) => (/^https?:\/\//i.test(address)
  ? make.a({ href: address }, foreign(address)) : foreign(address));

/** An address whose line is broken before a name in it, if it can be, and not within one. */
export const breakable = (address) => address.split(/(?<=\/)(?=[^/])/).flatMap((part, at) => (at ? [make.wbr(), part] : [part]));

/** An address as a link whose host steps back behind its path. */
export function resource(address) {
  const [, host = "", path] = /^(https?:\/\/[^/]*)?(.*)$/is.exec(address);
  const text = make.bdi({ title: address }, make.span({ className: "host" }, host), make.b({}, path));
  return host ? make.a({ href: address }, text) : text;
}

/** The beginning of a digest; pressed, it copies the whole. */
export const digest = (text) => make.button({ type: "button", className: "digest", title: text, ariaLabel: `Copy the digest ${text}`,
  onclick: ({ currentTarget }) => toClipboard(text, currentTarget) }, text.length > DIGEST ? `${text.slice(0, DIGEST)}…` : text);

export const tag = (text) =>
  make.span({ className: `tag ${["created", "updated", "deleted"].includes(text) ? text : ""}` }, foreign(text));

export const number = (value) => value?.toLocaleString("en") ?? "–";

/** Bytes, as people say it. */
export function size(bytes) {
  const power = Math.min(4, Math.floor(Math.log10(Math.max(1, bytes)) / 3));
  return `${(bytes / 1000 ** power).toLocaleString("en", { maximumSignificantDigits: 3 })} ${["B", "kB", "MB", "GB", "TB"][power]}`;
}

export const listed = (record) => Object.entries(record)
  .map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");

export const counted = (count, one, several = `${one}s`) => `${number(count)} ${count === 1 ? one : several}`;

export function ago(datetime, now = Date.now()) {
  if (!datetime) return "never";
  const seconds = (now - Date.parse(datetime)) / 1000;
  for (const [unit, size] of [["d", 86_400], ["h", 3600], ["min", 60], ["s", 1]]) {
    if (seconds >= 2 * size) return `${Math.floor(seconds / size)} ${unit} ago`;
  }
  return "just now";
}

export function clock(datetime) {
  const time = new Date(datetime);
  const day = time.toDateString() === new Date().toDateString() ? "" : `${time.toLocaleDateString("sv")} `;
  return `${day}${time.toLocaleTimeString("en-GB")}${time.toISOString().slice(19, 23)}`;
}

export const day = (datetime) => (datetime ? new Date(datetime).toLocaleString("sv") : "never");

export const row = (...cells) => make.tr({}, ...cells.map((cell) => make.td({}, ...[cell].flat())));

/** Put a table there, which the keyboard scrolls; its body takes the id. */
export function table(place, ariaLabel, ...columns) {
  const body = make.tbody({ id: place.id });
  const head = make.thead({}, make.tr({}, ...columns.map((column) => make.th({ scope: "col" }, column))));
  place.replaceWith(make.div({ className: `scroll ${place.className}`, tabIndex: 0, role: "region", ariaLabel },
    make.table({}, head, body)));
  return body;
}

/** Only these rows, in this order. A row that stays keeps the focus; one that leaves hands it to the row in its place. */
export function keepRows(body, wanted, otherwise = body.closest(".scroll")) {
  const focused = document.activeElement;
  const place = [...body.rows].findIndex((each) => each.contains(focused));
  const stays = new Set(wanted);
  for (const each of [...body.rows]) if (!stays.has(each)) each.remove();
  wanted.forEach((each, at) => { if (body.rows[at] !== each) body.insertBefore(each, body.rows[at] ?? null); });
  if (place === -1 || document.activeElement === focused) return;
  const next = body.contains(focused) ? focused : body.rows[Math.min(place, body.rows.length - 1)]?.querySelector("a, button");
  (next ?? otherwise).focus({ preventScroll: true });
}

/** Show it or hide it. If it goes that has the focus, `next` gets it. */
export function shows(element, isShown, next) {
  const hadFocus = element.contains(document.activeElement);
  element.hidden = !isShown;
  if (hadFocus && !isShown) next.focus();
}

export function submits(form, work) {
  form.onsubmit = (event) => {
    event.preventDefault();
    work(form.elements);
  };
}

export const button = (text, name, onclick) => make.button({ ariaLabel: `${text} ${name}`, onclick }, text);

/** Code whose parts are told apart by colour. */
export const coloured = (text, language) =>
  make.code({}, ...partsOf(text, language).map(([kind, part]) => (kind ? make.span({ className: `of-${kind}` }, part) : part)));

/** What to copy, and a button for it. Of a program no line is broken: it is scrolled to the side. */
export function copyable(label, text, language) {
  const code = language ? coloured(text, language) : make.code({}, text);
  const program = { className: "program scroll", tabIndex: 0, role: "group", ariaLabel: label };
  return make.div({ className: "copyable" }, make.span({ className: "label" }, label),
    make.span({ className: "acts" }, button("Copy", label, ({ target }) => toClipboard(text, target, code))),
    language ? make.div(program, code) : code);
}

/** Copy it, or else select it in `shown`. */
export async function toClipboard(text, copy, shown) {
  const before = copy.textContent;
  try {
    await navigator.clipboard.writeText(text);
    copy.textContent = "Copied";
  } catch { // there is none without https
    if (shown) getSelection().selectAllChildren(shown);
    copy.textContent = shown ? "Selected" : "Not copied";
  }
  setTimeout(() => { copy.textContent = before; }, 2000);
}

/** What only begins, as what ends in “…”, and what has ended, as it was meant to, is neither good nor bad: it waits. */
export function say(place, text, isBad = false, waits = text.endsWith("…")) {
  place.textContent = text;
  place.classList.toggle("bad", isBad);
  place.classList.toggle("waits", !isBad && waits);
}
