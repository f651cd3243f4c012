/** Heads by which a table of sets is ordered: a press chooses one, the next turns it round. */

import { make } from "./dom.js";

const NAME = 0; // the column of names is the first
const names = new Intl.Collator("en", { numeric: true });

export const byName = (one, other) => names.compare(one.name, other.name);

export const lastFirst = (one, other) => names.compare(other.newest ?? "", one.newest ?? "");

/** `columns` are `[title, compare]`, or a title alone where nothing can be ordered; `chosen` is called after a press. */
export function ordering(columns, newest, chosen) {
  let [by, isReversed] = [newest, false];
  let isNew = false; // the order was chosen, and nothing is arranged in it yet
  const heads = columns.map((column, at) => (typeof column === "string" ? column
    : make.button({ type: "button", className: "order", onclick: () => choose(at) }, column[0])));

  function choose(at) {
    isReversed = at === by && !isReversed;
    by = at;
    isNew = true;
    chosen();
  }

  /** In the chosen order. While a hand is on the table, those that are there stay where they are; but a new order comes
   * first, also for who has moved on from its head meanwhile. */
  function arranged(items, body, isHeld = body.matches(":hover, :focus-within")) {
    const compare = columns[by][1];
    const places = new Map(isHeld && !isNew ? [...body.rows].map(({ name }, at) => [name, at]) : []);
    const placeOf = ({ name }) => places.get(name) ?? body.rows.length;
    isNew = false;
    [...body.parentElement.tHead.rows[0].cells].forEach((head, at) => {
      head.ariaSort = at !== by ? null : (at === NAME) === isReversed ? "descending" : "ascending";
    });
    return [...items].sort((one, other) =>
      placeOf(one) - placeOf(other) || compare(one, other) * (isReversed ? -1 : 1) || byName(one, other));
  }

  return {
    heads,
    arranged,
    /** The order in which the hub is asked for them: it knows two. */
    asked: () => (by === NAME ? "name" : "newest"),
    /** Said of a part of all sets where the hub itself does not have the order that was chosen. */
    onlyOf: (count) => (count < 2 || ([NAME, newest].includes(by) && !isReversed) ? ""
      : `; only these ${count} are sorted by “${columns[by][0]}”${isReversed ? ", in reverse" : ""}`),
  };
}
