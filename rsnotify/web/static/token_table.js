/** The tokens: made, replaced and revoked. A token itself is shown once. */

import { ask } from "./api.js";
import { act, looking, undoable } from "./acts.js";
import { isMeant } from "./asking.js";
import { button, copyable, day, foreign, make, row, submits, the } from "./dom.js";
import { blame, field, forgive, opens } from "./fields.js";
import { set } from "./here.js";
import { listing } from "./listing.js";
import { namesIn, setNames } from "./set_names.js";

const WORDS = { sets: "sets?", publish: "right", read: "right" }; // by which a refusal names these fields
const place = the["made-token"];
const tokens = listing("tokens", "Tokens", ["Note", "Id", "May", "Sets", "Last used", "Expires", "Actions"], draw,
  { key: ({ id }) => id, made, fill });
let all = [];

export const look = looking("api/tokens", (those) => {
  all = those;
  draw();
}, tokens.failed);

function draw() {
  tokens.showOf(all, ({ id, note = "", sets }) => [id, note, ...sets].join(" "));
}

function made({ id, note = "", rights = ["publish"], sets }) {
  const path = `api/tokens/${id}`;
  return row(foreign(note), id, rights.join(", "), sets.join(" "), "", "", [
    button("Replace", id, () => shownOnce(`Replace ${id}`, () => ask("POST", `${path}/rotate`, {}))), " ",
    button("Replace now", id, async () => {
      const lost = `The token for ${sets.join(" ")}${note && ` (${note})`} ends at once, also where it is in use. If it
        has not leaked, “Replace” leaves a day to change it there.`;
      if (!await isMeant(`Replace the token ${id} now?`, lost, "End it now", { no: "Keep it" })) return;
      shownOnce(`Replace ${id} now`, () => ask("POST", `${path}/rotate`, { grace_seconds: 0 }));
    }), " ",
    undoable("Revoke", id, async () => {
      await ask("DELETE", path);
      look();
    })]);
}

function fill({ cells }, { used, expires }) {
  [cells[4].textContent, cells[5].textContent] = [day(used), day(expires)];
}

async function shownOnce(words, work) {
  const found = await act(words, work, place);
  if (!found) return;
  place.append(copyable("It is shown this once", found.token));
  look();
}

opens(the["add-token"], the["new-token"], (close) => {
  const names = setNames(set?.name ?? "");
  const form = make.form({ className: "options", autocomplete: "off", ariaLabel: "Make a token" }, names.list,
    make.div({ className: "grid" },
      field({ name: "sets", label: "Sets", help: "Separated by spaces.", input: names.input }),
      field({ name: "note", label: "Note", help: "Who has it, and for what.", input: make.input({ maxLength: 255 }) }),
      field({ name: "expires_days", label: "Expires after days", help: "Empty: never.", input: make.input({ type: "number", min: 1 }) }),
      field({ name: "publish", label: "May publish", input: make.input({ type: "checkbox", checked: true }) }),
      field({ name: "read", label: "May read", help: "Private sets, too.", input: make.input({ type: "checkbox" }) })),
    make.output({}),
    make.div({ className: "row" }, make.button({}, "Make it"), make.button({ type: "button", onclick: close }, "Cancel")));
  submits(form, async ({ sets, publish, read, note, expires_days: expires }) => {
    try {
      if (!await names.judge()) {
        sets.focus();
        return;
      }
      const found = await ask("POST", "api/tokens", {
        sets: namesIn(sets.value),
        rights: [publish, read].filter(({ checked }) => checked).map(({ name }) => name),
        note: note.value,
        expires_days: Number(expires.value) || null,
      });
      forgive(form);
      close();
      shownOnce("Make a token", () => found);
    } catch ({ message }) {
      blame(form, message, WORDS);
    }
  });
  return form;
});
