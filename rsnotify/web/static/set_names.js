/** A field for names of sets: it offers how the last can go on, and says at once which of them there is not. */

import { get } from "./api.js";
import { make } from "./dom.js";
import { wrong } from "./fields.js";

const TYPING_MS = 200; // after the last key
const OFFERED = 50; // of those that have in their names what is typed

export const namesIn = (text) => text.split(/[\s,]+/).filter(Boolean);

/** `{input, list, judge}`; `judge` says whether all are there, the last as it stands. */
export function setNames(value) {
  const list = make.datalist({ id: "sets-offered" });
  const input = make.input({ required: true, spellcheck: false, value });
  input.setAttribute("list", list.id);
  const known = new Set();
  let [timer, turn] = [0, 0];

  /** While it is typed, the last name is wrong if none has it as its part. */
  async function look(isWhole) {
    clearTimeout(timer);
    turn += 1;
    const mine = turn;
    const [last] = /[^\s,]*$/.exec(input.value);
    const before = input.value.slice(0, input.value.length - last.length);
    const found = await sets({ search: last, limit: OFFERED });
    const missing = await missingOf(isWhole || !found.length ? namesIn(input.value) : namesIn(before));
    if (mine === turn) {
      list.replaceChildren(...found.map((name) => make.option({ value: before + name })));
      wrong(input, missing.length ? `There is no set ${missing.join(", nor ")}.` : "");
    }
    return !missing.length;
  }

  async function sets(query) {
    const found = (await get("api/sets", query)).map(({ name }) => name);
    for (const name of found) known.add(name);
    return found;
  }

  async function missingOf(names) {
    await Promise.all(names.filter((name) => !known.has(name)).map((name) => sets({ name })));
    return names.filter((name) => !known.has(name));
  }

  const quietly = (isWhole) => look(isWhole).catch(() => {}); // the hub itself judges what is sent
  input.oninput = () => {
    clearTimeout(timer);
    timer = setTimeout(quietly, TYPING_MS, false);
  };
  input.onchange = () => quietly(true);
  quietly(true);
  return { input, list, judge: () => look(true) };
}
