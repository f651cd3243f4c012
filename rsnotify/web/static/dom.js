/**
 * Elements. Text is only ever set as text, so what a stranger wrote never becomes markup.
 */

export const byId = (id) => document.getElementById(id);

/** An element with these properties, and with children that are elements or text. */
export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/** A stranger's text: its writing direction stays inside. */
export const foreign = (text) => element("bdi", { textContent: text, title: text });

/** A stranger's address, as a link if it leads to the web. */
export const link = (address) => (/^https?:\/\//i.test(address)
  ? element("a", { href: address, rel: "noopener noreferrer nofollow" }, foreign(address)) : foreign(address));

/** What happened, in its colour. */
export const tag = (text) => element("span",
  { className: `tag ${["created", "updated", "deleted"].includes(text) ? text : ""}` }, foreign(text));

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

/** The time of day, here, to the millisecond; with its day if that is not today. */
export function clock(datetime) {
  const time = new Date(datetime);
  const day = time.toDateString() === new Date().toDateString() ? "" : `${time.toLocaleDateString("sv")} `;
  return `${day}${time.toLocaleTimeString("en-GB")}.${String(time.getMilliseconds()).padStart(3, "0")}`;
}

/** Cells that are text, or one or several elements. */
export const row = (...cells) => element("tr", {}, ...cells.map((cell) => element("td", {}, ...[cell].flat())));

/** A table with these columns, which the keyboard scrolls, in the place of `place`; its body, which takes its id. */
export function table(place, ariaLabel, ...columns) {
  const body = element("tbody", { id: place.id });
  const heads = columns.map((textContent) => element("th", { scope: "col", textContent }));
  place.replaceWith(element("div", { className: `scroll ${place.className}`, tabIndex: 0, role: "region", ariaLabel },
    element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body)));
  return body;
}

export const button = (textContent, name, onclick) =>
  element("button", { type: "button", textContent, ariaLabel: `${textContent} ${name}`, onclick });

/** Text to copy, with a button that does. */
export function copyable(label, text) {
  const code = element("code", { textContent: text });
  return element("div", { className: "copyable" }, element("span", { className: "label", textContent: label }), code,
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

/** Say how something went, in the place that screen readers watch. */
export function tell(place, text, isBad = false) {
  place.textContent = text;
  place.classList.toggle("bad", isBad);
}
