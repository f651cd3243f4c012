/** Tabs as the ARIA Authoring Practices have them: one is in the order of Tab, the arrow keys choose among them. */

import { make } from "./dom.js";

const MOVES = { ArrowRight: (at) => at + 1, ArrowLeft: (at) => at - 1, Home: () => 0, End: () => -1 };

/** The list of tabs and their panels, of `{title: [its content]}`. */
export function tabs(ariaLabel, contents) {
  const panels = Object.values(contents).map((content) => make.div({ role: "tabpanel", className: "panel" }, ...content));
  const heads = Object.keys(contents).map((title, at) => {
    const id = `${ariaLabel}-${title}`.replace(/\W+/g, "-").toLowerCase();
    Object.assign(panels[at], { id: `${id}-panel` }).setAttribute("aria-labelledby", id);
    const head = make.button({ id, role: "tab", type: "button", onclick: () => choose(at) }, title);
    head.setAttribute("aria-controls", `${id}-panel`);
    return head;
  });
  const choose = (chosen) => heads.forEach((head, at) => {
    Object.assign(head, { ariaSelected: at === chosen, tabIndex: at === chosen ? 0 : -1 });
    panels[at].hidden = at !== chosen;
  });
  const list = make.div({ role: "tablist", className: "tabs", ariaLabel }, ...heads);
  list.onkeydown = (event) => {
    const next = heads.at(MOVES[event.key]?.(heads.indexOf(event.target)) % heads.length);
    if (!(event.key in MOVES)) return;
    event.preventDefault();
    choose(heads.indexOf(next));
    next.focus();
  };
  choose(0);
  return [list, ...panels];
}
