/**
 * What only the admin may do: sets, tokens, WebSub subscriptions. `show` draws all of it anew.
 */

import { ask } from "./api.js";
import { button, byId, copyable, element, foreign, tell } from "./dom.js";
import { token } from "./token.js";

const ROWS = 100; // of a table
const SETS = 50;

let setsChanged = () => {};
let shows = 0; // how often it was to be drawn, or hidden: an older answer changes nothing

/** Draw everything if the token of this tab is the admin's; whether it is. */
export async function show() {
  shows += 1;
  const turn = shows;
  let tokens, subscriptions;
  try {
    tokens = await ask("GET", "api/tokens");
    subscriptions = await ask("GET", "api/subscriptions");
  } catch (error) {
    const isRefused = error.status === 401 || error.status === 403;
    if (isRefused && turn === shows) isAdmin(false);
    if (error.status === 403) return false;
    throw error;
  }
  if (turn === shows) {
    draw("tokens", tokens.map(tokenRow), "`rsnotify tokens list`");
    draw("subscriptions", subscriptions.map(subscriptionRow), "`rsnotify subscriptions list`");
    isAdmin(true);
  }
  return true;
}

function isAdmin(is) {
  byId("admin").hidden = !is;
  byId("not-admin").hidden = is;
}

export function hide() {
  shows += 1;
  isAdmin(false);
  for (const id of ["sets", "tokens", "subscriptions", "made-token"]) byId(id).replaceChildren();
}

/** The first sets that have in their names what is looked for. */
export async function showSets() {
  if (!token()) return;
  const search = byId("find-admin").value.trim();
  const sets = await ask("GET", `api/sets?${new URLSearchParams({ search, limit: SETS + 1 })}`);
  if (search !== byId("find-admin").value.trim()) return; // it is asked for again already
  draw("sets", sets.slice(0, SETS).map(setRow));
  byId("more-sets").hidden = sets.length <= SETS;
}

/** So many rows at most; a command lists them all. */
function draw(id, rows, command) {
  const place = byId(id);
  const columns = place.parentElement.tHead.rows[0].cells.length;
  place.replaceChildren(...rows.slice(0, ROWS));
  const more = (rows.length - ROWS).toLocaleString("en");
  if (!rows.length) place.append(note("none", columns));
  else if (rows.length > ROWS) place.append(note(`${more} more: ${command} lists all`, columns));
}

const note = (text, colSpan) => element("tr", {}, element("td", { colSpan, textContent: text }));

/** Do it, say what became of it, and draw anew meanwhile. */
async function act(words, work, place = byId("admin-answer")) {
  let done;
  try {
    done = await work();
  } catch (error) {
    tell(place, `${words}: ${error.message}`, true);
    return null;
  }
  tell(place, `${words}: done.`);
  drawAnew();
  return done;
}

/** What was done is done, also if this fails: a token that was made is shown only once. */
async function drawAnew() {
  try {
    await Promise.all([show(), showSets(), setsChanged()]);
  } catch (error) {
    tell(byId("admin-answer"), `The tables could not be read again: ${error.message}`, true);
  }
}

const row = (cells) => element("tr", {}, ...cells.map((cell) => element("td", {}, ...[cell].flat())));

// Sets --------------------------------------------------------------------------------------------

const setPath = (name) => `api/sets/${encodeURIComponent(name)}`;

function setRow(set) {
  const remove = button("Remove", set.name, async () => {
    if (!confirm(`Remove the set ${set.name} and all its changes, for ever?`)) return;
    await act(`Remove ${set.name}`, () => ask("DELETE", setPath(set.name)));
  });
  const reads = set.private ? "with a token" : "everybody";
  return row([set.name, reads, day(set.created), [button("Edit", set.name, () => fill(set)), " ", remove]]);
}

function fill(set) {
  const form = byId("edit-set");
  form.elements.name.value = set.name;
  form.describedby.value = set.describedby ?? "";
  form.private.checked = set.private;
  form.private.focus();
}

async function saveSet(form) {
  const name = form.elements.name.value;
  const options = { private: form.private.checked, describedby: form.describedby.value || null };
  const saved = await act(`Save ${name}`, async () => {
    await ask("PUT", setPath(name), options);
    const record = await ask("PATCH", setPath(name), options);
    if (!byId("more-sets").hidden) byId("find-admin").value = name; // else it may not be among the first
    return record;
  });
  if (saved) form.reset();
}

// Tokens ------------------------------------------------------------------------------------------

function tokenRow(token) {
  const revoke = button("Revoke", token.id, async () => {
    if (!confirm(`Revoke the token ${token.id} (${token.note ?? ""})?`)) return;
    await act(`Revoke ${token.id}`, () => ask("DELETE", `api/tokens/${encodeURIComponent(token.id)}`));
  });
  const replace = button("Replace", token.id, () => madeToken(`Replace ${token.id}`,
    () => ask("POST", `api/tokens/${encodeURIComponent(token.id)}/rotate`, {})));
  const { id, note = "", rights = ["publish"], sets, used, expires } = token;
  return row([id, foreign(note), rights.join(", "), sets.join(" "), day(used), day(expires),
    [replace, " ", revoke]]);
}

async function makeToken(form) {
  const rights = ["publish", "read"].filter((right) => form[right].checked);
  const sets = form.sets.value.split(/[\s,]+/).filter(Boolean);
  const content = { sets, rights, note: form.note.value, expires_days: Number(form.expires.value) || null };
  if (await madeToken("Make a token", () => ask("POST", "api/tokens", content))) form.reset();
}

async function madeToken(words, work) {
  const made = await act(words, work, byId("made-token"));
  if (made) byId("made-token").append(copyable("It is shown this once", made.token));
  return made;
}

// Subscriptions -----------------------------------------------------------------------------------

function subscriptionRow(each) {
  const path = `api/subscriptions/${encodeURIComponent(each.id)}`;
  const retry = button("Retry", each.callback, () => act("Retry", () => ask("POST", `${path}/retry`)));
  const end = button("End", each.callback, () => {
    if (confirm(`End the subscription of ${each.callback}?`)) act("End it", () => ask("DELETE", path));
  });
  const behind = each.behind_seconds === null ? "the set is gone" : `${Math.round(each.behind_seconds)} s`;
  const answer = each.failures ? `${each.last_answer} (${each.failures} failures)` : each.last_answer;
  return row([foreign(each.callback), `${each.set} ${each.kind}`, behind, foreign(answer ?? "none yet"),
    each.next_attempt ? day(each.next_attempt) : "", [retry, " ", end]]);
}

const day = (datetime) => (datetime ? new Date(datetime).toLocaleString("sv") : "never");

export function watchForms(onSetsChanged) {
  setsChanged = onSetsChanged;
  byId("find-admin").oninput = () => showSets().catch((error) => tell(byId("admin-answer"), error.message, true));
  const work = { "edit-set": saveSet, "new-token": makeToken };
  for (const [id, submitted] of Object.entries(work)) {
    byId(id).onsubmit = (event) => {
      event.preventDefault();
      submitted(event.target);
    };
  }
}
