/** A table that is searched and read in pages. A row stays the same element, so that the focus stays in it. */

import { keepRows, make, number, say, table, the } from "./dom.js";

export const ROWS = 25; // at once, however many there are
const FEW = 10; // among which nobody has to search
const TYPING_MS = 200; // after the last key

/** `ask` is called when another part is wanted; `key`, `made` and `fill` are of a row.
 *
 * Where the window is narrow, what stands between the first cell of a row and the last stands below the first, in words.
 */
export function listing(id, label, columns, ask, { key, made, fill = () => {} }) {
  const find = make.input({ type: "search", maxLength: 64, ariaLabel: `Find in ${label}`, placeholder: "find", hidden: true });
  const found = make.output({ className: "found" }, "Not read yet.");
  const [back, on] = [["Back", -ROWS], ["Next", ROWS]].map(([text, step]) => make.button({
    type: "button", hidden: true, ariaLabel: `${text} in ${label}`, onclick: ({ target }) => { if (!target.ariaDisabled) turnTo(first + step); },
  }, text));
  const tools = make.div({ className: "row tools" }, find, found, back, on);
  let [first, typing] = [0, 0];
  const names = columns.map((column) => column.textContent ?? column);
  the[id].before(tools);
  the[id].className = "listing";
  const body = table(the[id], label, ...columns);
  body.closest(".scroll").hidden = true; // until there are rows: a head alone says nothing

  function turnTo(next) {
    clearTimeout(typing); // what is asked for now has what was typed
    first = Math.max(0, next);
    ask();
  }

  function madeWith(item) {
    const found = made(item);
    if (found.cells.length === columns.length) found.cells[0].append(make.div({ className: "below" }));
    return found;
  }

  function fillAll(found, item) {
    fill(found, item);
    const below = found.querySelector(".below");
    if (!below) return;
    const words = [...found.cells].map(({ textContent }, at) => textContent && `${names[at]} ${textContent}`).slice(1, -1);
    below.textContent = words.filter(Boolean).join("\u00a0· ");
  }

  find.oninput = () => {
    clearTimeout(typing);
    typing = setTimeout(turnTo, TYPING_MS, 0);
  };

  /** These are there now, of so many in all; `by` says what is on which page. */
  function show(items, total, by = "") {
    if (first && first >= total) {
      turnTo(total - 1 - ((total - 1) % ROWS));
      return;
    }
    keep(body, items, key, madeWith, fillAll);
    body.closest(".scroll").hidden = !items.length;
    const last = Math.min(first + ROWS, total);
    [find.hidden, back.hidden, on.hidden] = [total <= FEW && !find.value && !first, total <= ROWS, total <= ROWS];
    [back.ariaDisabled, on.ariaDisabled] = [first ? null : "true", last < total ? null : "true"];
    say(found, !total ? (find.value ? "None has this in it." : "There are none yet.")
      : total <= ROWS ? `${number(total)} in all` : `${number(first + 1)} to ${number(last)} of ${number(total)}${by}`);
  }

  return {
    body,
    show,
    failed: (why) => say(found, why, true),
    find,
    again: () => turnTo(0),
    asked: () => ({ search: find.value.trim().toLowerCase(), offset: first, limit: ROWS }),
    /** All are here: show those of them that are asked for. */
    showOf(all, text) {
      const fit = all.filter((each) => text(each).toLowerCase().includes(find.value.trim().toLowerCase()));
      show(fit.slice(first, first + ROWS), fit.length);
    },
  };
}

/** Show these rows in this order. If one goes that has the focus, the row in its place gets it. */
export function keep(body, items, key, made, fill) {
  const standing = new Map([...body.rows].map((each) => [each.key, each]));
  const wanted = items.map((item) => {
    const row = standing.get(key(item)) ?? Object.assign(made(item), { key: key(item) });
    fill(row, item);
    return row;
  });
  keepRows(body, wanted);
}
