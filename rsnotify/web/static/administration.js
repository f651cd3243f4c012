/**
 * What only the admin may do: sets, tokens, WebSub subscriptions. `show` draws all of it anew.
 */

import { ask, get, setPath } from "./api.js";
import { button, byId, copyable, element, foreign, number, row, table, tell } from "./dom.js";

const ROWS = 100; // of a table
const SETS = 50;

const sets = table(byId("sets"), "Sets", "name", "who reads", "created", "actions");
const tokens = table(byId("tokens"), "Tokens", "id", "note", "may", "sets", "last used", "expires", "actions");
const subscriptions = table(byId("subscriptions"), "WebSub subscriptions",
  "callback", "channel", "behind", "last answer", "next attempt", "actions");
const [answer, found] = ["admin-answer", "find-admin"].map(byId);
let showAll = () => {};
let turn = 0; // an older answer changes nothing

/** For the admin: the tables, if they are looked at. */
export async function show(isAdmin, isSeen) {
  turn += 1;
  const mine = turn;
  byId("admin").hidden = !isAdmin;
  byId("not-admin").hidden = isAdmin;
  if (!isAdmin) for (const each of [sets, tokens, subscriptions, byId("made-token")]) each.replaceChildren();
  if (!isAdmin || !isSeen) return;
  try {
    const [those, subscribed] = await Promise.all([get("api/tokens"), get("api/subscriptions"), showSets()]);
    if (mine !== turn) return;
    draw(tokens, those.map(tokenRow), "`rsnotify tokens list`");
    draw(subscriptions, subscribed.map(subscriptionRow), "`rsnotify subscriptions list`");
  } catch (error) { // what was done is done: a token that was made is shown only once
    if (mine === turn) tell(answer, `The tables could not be read: ${error.message}`, true);
  }
}

/** The first sets that have in their names what is looked for. */
async function showSets() {
  const search = found.value.trim();
  const some = await get("api/sets", { search, limit: SETS + 1 });
  if (search !== found.value.trim()) return; // it is asked for again already
  draw(sets, some.slice(0, SETS).map(setRow));
  byId("more-sets").hidden = some.length <= SETS;
}

/** So many rows at most; a command lists them all. */
function draw(body, rows, command) {
  body.replaceChildren(...rows.slice(0, ROWS));
  const text = !rows.length ? "none" : rows.length > ROWS && `${number(rows.length - ROWS)} more: ${command} lists all`;
  if (text) body.append(element("tr", {}, element("td", { colSpan: 7, textContent: text })));
}

/** Do it, say what became of it, and draw anew meanwhile. */
async function act(words, work, place = answer) {
  try {
    const done = await work();
    tell(place, `${words}: done.`);
    showAll();
    return done;
  } catch (error) {
    tell(place, `${words}: ${error.message}`, true);
    return undefined;
  }
}

/** A button that does this, if the admin is sure of what `question` asks. */
const action = (text, name, work, question) =>
  button(text, name, () => { if (!question || confirm(question)) act(`${text} ${name}`, work); });

// Sets --------------------------------------------------------------------------------------------

const setRow = (set) => row(set.name, set.private ? "with a token" : "everybody", day(set.created), [
  button("Edit", set.name, () => edit(set)), " ",
  action("Remove", set.name, () => ask("DELETE", setPath(set.name)), `Remove the set ${set.name} and all its changes, for ever?`)]);

function edit(set) {
  const { elements } = byId("edit-set");
  elements.name.value = set.name;
  elements.describedby.value = set.describedby ?? "";
  elements.private.checked = set.private;
  elements.private.focus();
}

async function saveSet(form) {
  const { name, private: isPrivate, describedby } = form.elements;
  const options = { private: isPrivate.checked, describedby: describedby.value || null };
  const saved = await act(`Save ${name.value}`, async () => {
    await ask("PUT", setPath(name.value), options);
    const record = await ask("PATCH", setPath(name.value), options);
    if (!byId("more-sets").hidden) found.value = name.value; // else it may not be among the first
    return record;
  });
  if (saved) form.reset();
}

// Tokens ------------------------------------------------------------------------------------------

function tokenRow({ id, note = "", rights = ["publish"], sets: names, used, expires }) {
  const path = `api/tokens/${encodeURIComponent(id)}`;
  const replace = button("Replace", id, () => madeToken(`Replace ${id}`, () => ask("POST", `${path}/rotate`, {})));
  const revoke = action("Revoke", id, () => ask("DELETE", path), `Revoke the token ${id} (${note})?`);
  return row(id, foreign(note), rights.join(", "), names.join(" "), day(used), day(expires), [replace, " ", revoke]);
}

async function makeToken(form) {
  const rights = ["publish", "read"].filter((right) => form[right].checked);
  const names = form.sets.value.split(/[\s,]+/).filter(Boolean);
  const content = { sets: names, rights, note: form.note.value, expires_days: Number(form.expires.value) || null };
  if (await madeToken("Make a token", () => ask("POST", "api/tokens", content))) form.reset();
}

async function madeToken(words, work) {
  const made = await act(words, work, byId("made-token"));
  if (made) byId("made-token").append(copyable("It is shown this once", made.token));
  return made;
}

// Subscriptions -----------------------------------------------------------------------------------

function subscriptionRow({ id, callback, set, kind, behind_seconds: behind, last_answer: last, failures, next_attempt: next }) {
  const path = `api/subscriptions/${encodeURIComponent(id)}`;
  return row(foreign(callback), `${set} ${kind}`, behind === null ? "the set is gone" : `${Math.round(behind)} s`,
    foreign(`${last ?? "none yet"}${failures ? ` (${failures} failures)` : ""}`), next ? day(next) : "", [
      action("Retry", callback, () => ask("POST", `${path}/retry`)), " ",
      action("End", callback, () => ask("DELETE", path), `End the subscription of ${callback}?`)]);
}

const day = (datetime) => (datetime ? new Date(datetime).toLocaleString("sv") : "never");

/** `redraw` shows the page anew. */
export function watchForms(redraw) {
  showAll = redraw;
  found.oninput = () => showSets().catch((error) => tell(answer, error.message, true));
  for (const [id, submitted] of [["edit-set", saveSet], ["new-token", makeToken]]) {
    byId(id).onsubmit = (event) => {
      event.preventDefault();
      submitted(event.target);
    };
  }
}
