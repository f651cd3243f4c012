/** Elements. Text is only ever set as text, so what a stranger wrote never becomes markup. */

/** An element by its id: `the.main`. */
export const the = new Proxy({}, { get: (_, id) => document.getElementById(id) });

/** A new element, its properties, its text and children: `make.a({ href }, "text")`. */
export const make = new Proxy({}, { get: (_, name) => (properties, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
} });

/** A stranger's text, which may run from right to left. */
export const foreign = (text) => make.bdi({ title: text }, text);

/** A link if it leads to the web. */
export const link = (address) => (/^https?:\/\//i.test(address)
  ? make.a({ href: address, rel: "noopener noreferrer nofollow" }, foreign(address)) : foreign(address));

export const tag = (text) =>
  make.span({ className: `tag ${["created", "updated", "deleted"].includes(text) ? text : ""}` }, foreign(text));

export const number = (value) => value?.toLocaleString("en") ?? "–";

export const counted = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

/** How long ago it was, by the clock of the hub. */
export function ago(datetime, now = Date.now()) {
  if (!datetime) return "never";
  const seconds = Math.max(0, (now - Date.parse(datetime)) / 1000);
  for (const [unit, size] of [["d", 86_400], ["h", 3600], ["min", 60]]) {
    if (seconds >= 2 * size) return `${Math.floor(seconds / size)} ${unit} ago`;
  }
  return seconds < 2 ? "just now" : `${Math.floor(seconds)} s ago`;
}

/** The time of day here; with its day if that is not today. */
export function clock(datetime) {
  const time = new Date(datetime);
  const day = time.toDateString() === new Date().toDateString() ? "" : `${time.toLocaleDateString("sv")} `;
  return `${day}${time.toLocaleTimeString("en-GB")}${time.toISOString().slice(19, 23)}`;
}

/** Of cells that are text, an element, or several. */
export const row = (...cells) => make.tr({}, ...cells.map((cell) => make.td({}, ...[cell].flat())));

/** A table in the place of `place`, which the keyboard scrolls; its body, which takes the id. */
export function table(place, ariaLabel, ...columns) {
  const body = make.tbody({ id: place.id });
  const head = make.thead({}, make.tr({}, ...columns.map((column) => make.th({ scope: "col" }, column))));
  place.replaceWith(make.div({ className: `scroll ${place.className}`, tabIndex: 0, role: "region", ariaLabel },
    make.table({}, head, body)));
  return body;
}

export function submits(form, work) {
  form.onsubmit = (event) => {
    event.preventDefault();
    work(form.elements);
  };
}

/** `name` says of what, to screen readers. */
export const button = (text, name, onclick) => make.button({ type: "button", ariaLabel: `${text} ${name}`, onclick }, text);

export function copyable(label, text) {
  const code = make.code({}, text);
  return make.div({ className: "copyable" }, make.span({ className: "label" }, label), code,
    button("Copy", label, ({ target }) => toClipboard(text, target, code)));
}

/** Copy it, or select it in `shown`; the button says which. */
export async function toClipboard(text, copy, shown) {
  const before = copy.textContent;
  try {
    await navigator.clipboard.writeText(text);
    copy.textContent = "Copied";
  } catch { // a page that did not come over https or from this machine has no clipboard
    if (shown) getSelection().selectAllChildren(shown);
    copy.textContent = shown ? "Selected" : "Not copied";
  }
  setTimeout(() => { copy.textContent = before; }, 2000);
}

/** Say how something went, where screen readers notice it. */
export function say(place, text, isBad = false) {
  place.textContent = text;
  place.classList.toggle("bad", isBad);
}
