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
export function link(address) {
  if (!/^https?:\/\//i.test(address)) return foreign(address);
  const made = element("a", { href: address, rel: "noopener noreferrer nofollow" });
  made.append(foreign(address));
  return made;
}

export const number = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en"));

/** How long ago it was, by the clock of the hub. */
export function ago(datetime, now = Date.now()) {
  if (!datetime) return "never";
  const seconds = Math.max(0, (now - Date.parse(datetime)) / 1000);
  for (const [unit, size] of [["d", 86_400], ["h", 3600], ["min", 60]]) {
    if (seconds >= 2 * size) return `${Math.floor(seconds / size)} ${unit} ago`;
  }
  return seconds < 2 ? "just now" : `${Math.floor(seconds)} s ago`;
}

export function button(text, name, onclick) {
  const made = element("button", { type: "button", textContent: text, onclick });
  made.setAttribute("aria-label", `${text} ${name}`);
  return made;
}

/** Text to copy, with a button that does. */
export function copyable(label, text) {
  const code = element("code", { textContent: text });
  const copy = button("Copy", label, () => toClipboard(text, copy, code));
  return element("div", { className: "copyable" },
    element("span", { className: "label", textContent: label }), code, copy);
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
