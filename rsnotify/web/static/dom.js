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

export function button(text, name, onclick) {
  const made = element("button", { type: "button", textContent: text, onclick });
  made.setAttribute("aria-label", `${text} ${name}`);
  return made;
}

/** Text to copy, with a button that does. */
export function copyable(label, text) {
  const code = element("code", { textContent: text });
  const copy = button("Copy", label, () => toClipboard(code, copy));
  return element("div", { className: "copyable" },
    element("span", { className: "label", textContent: label }), code, copy);
}

async function toClipboard(code, copy) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    copy.textContent = "Copied";
  } catch { // a page that did not come over https or from this machine has no clipboard
    getSelection().selectAllChildren(code);
    copy.textContent = "Selected";
  }
  setTimeout(() => { copy.textContent = "Copy"; }, 2000);
}

/** Say how something went, in the place that screen readers watch. */
export function tell(place, text, isBad = false) {
  place.textContent = text;
  place.classList.toggle("bad", isBad);
}
