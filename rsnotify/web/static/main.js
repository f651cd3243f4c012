/**
 * Puts the page together: the address says which view and which set, the token opens what it may.
 */

import * as administration from "./administration.js";
import { get, HOME } from "./api.js";
import * as changes from "./changes.js";
import * as debugging from "./debugging.js";
import { ago, byId, number, tell } from "./dom.js";
import { Following, history as historyOf } from "./following.js";
import * as overview from "./overview.js";
import * as picture from "./picture.js";
import * as publishing from "./publishing.js";
import * as snippets from "./snippets.js";
import * as status from "./status.js";
import { keep, takeFromAddress, token } from "./token.js";
import * as validating from "./validating.js";

const VIEWS = { overview: "Sets", set: "", debugger: "Debugger", validator: "Validator", admin: "Admin" };
const OF_A_SET = ["set", "debugger", "validator"];
const RETRY_MS = 2000;
const TYPING_MS = 200; // after the last key, until sets are looked for

const [key, answer] = [byId("key"), byId("token").querySelector(".answer")];
let view = "overview";
let chosen = null; // the set, as the hub describes it
let rights = {}; // of the token of this tab, to the chosen set
let following = null;
let shows = 0; // how often the address was looked at
let timer = 0;
let figures = {}; // what was known of the chosen set last

// Where we are ------------------------------------------------------------------------------------

/** Show what the address names. */
async function show({ isMove = false } = {}) {
  clearTimeout(timer);
  shows += 1;
  const turn = shows;
  const asked = new URLSearchParams(location.search);
  try {
    const { name, set } = await wanted(asked);
    const allowed = token() ? await get("api/rights", set ? { name: set.name } : {}) : {};
    if (turn !== shows) return;
    view = asked.get("view") in VIEWS ? asked.get("view") : set || asked.get("set") ? "set" : "overview";
    if (view === "set" && !name) view = "overview";
    useRights(allowed);
    choose(set);
    problem(OF_A_SET.includes(view) && !set ? missing(name) : "");
  } catch (error) {
    if (turn !== shows) return;
    if (error.isOfToken) refused(error.message);
    else {
      problem(error.message);
      timer = setTimeout(show, RETRY_MS);
    }
    return;
  }
  draw(isMove);
  if (view === "set" && chosen && asked.get("from")) showMoment(asked.get("from"), turn);
  if (view === "validator") validating.open(asked.get("document"));
  administration.show(rights.admin === true, view === "admin");
  watch();
}

/** The set that the address names. Where it names none, it is the one before, or the only one there is. */
async function wanted(asked) {
  const name = asked.get("set") ?? (OF_A_SET.includes(asked.get("view")) ? chosen?.name : null);
  if (name) return { name, set: (await get("api/sets", { name }))[0] };
  if (asked.has("view") && !OF_A_SET.includes(asked.get("view"))) return { set: chosen };
  const [first, second] = await get("api/sets", { limit: 2 });
  const set = second && !asked.has("view") ? undefined : first;
  return { name: set?.name, set };
}

const missing = (name) => (name ? `There is no set ${name}, or it is private and needs a token.` : "There is no set yet.");

function problem(text) {
  byId("problem").textContent = text;
  byId("problem").hidden = !text;
}

function draw(isMove) {
  for (const each of document.querySelectorAll("[data-view]")) {
    each.hidden = each.dataset.view !== view || (view === "set" && !chosen);
  }
  for (const link of document.querySelectorAll("nav a")) {
    const url = new URL(link.href);
    if (chosen) url.searchParams.set("set", chosen.name);
    link.href = url.search;
    link.ariaCurrent = url.searchParams.get("view") === view ? "page" : null;
  }
  document.title = `${VIEWS[view] || chosen?.name || "Set"} – rsnotify`;
  if (!isMove) return;
  scrollTo(0, 0);
  document.querySelector(`[data-view=${view}] h1`).focus();
}

/** A link within the page changes the view, not the document. */
function clicked(event) {
  const link = event.target.closest?.("a");
  const isPlain = event.button === 0 && !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);
  if (!link || !isPlain || link.origin !== HOME.origin || link.pathname !== HOME.pathname || link.hash) return;
  event.preventDefault();
  history.pushState(null, "", link.href);
  show({ isMove: true });
}

// The chosen set ----------------------------------------------------------------------------------

function choose(set) {
  const isSame = set && following && set.name === following.set && set.private === following.isPrivate;
  if (isSame && !following.hasStopped) {
    if (!new URLSearchParams(location.search).has("from")) changes.showLatest();
    return;
  }
  following?.stop();
  following = null;
  chosen = set ?? null;
  figures = {};
  changes.clear(chosen?.name);
  debugging.reset();
  if (chosen) {
    for (const place of document.querySelectorAll(".set-name")) place.textContent = chosen.name;
    for (const id of ["resources", "today", "last", "readers"]) byId(id).textContent = "–";
    byId("is-private").hidden = !chosen.private;
    snippets.show(chosen);
    validating.offer(snippets.documentsOf(chosen.name));
    tell(byId("health"), "connecting…");
    following = new Following(chosen, heard);
    picture.show(following);
  }
  publishing.look(following);
}

const heard = {
  state: (text, isBad) => {
    tell(byId("health"), text, isBad);
    publishing.look(following);
    if (!isBad) picture.joined();
  },
  gap: (after, from) => {
    changes.addGap(after, from);
    picture.gap();
  },
  past: (past) => {
    changes.addPast(past);
    publishing.look(following); // what was published while the channel was opened
  },
  notification: ({ changes: those, until }) => {
    changes.add(those);
    publishing.look(following);
    picture.arrived(those.length, until);
  },
};

async function showMoment(from, turn) {
  try {
    const { changes: those } = await historyOf(chosen.name, { from });
    if (turn === shows) changes.showMoment(those, from);
  } catch (error) {
    if (turn === shows) problem(error.message);
  }
}

// Figures -----------------------------------------------------------------------------------------

const watch = () => status.watch(() => (view === "overview" ? { limit: overview.SHOWN + 1, search: byId("find").value.trim() }
  : { limit: 1, name: chosen?.name ?? "" }), showStatus);

function showStatus(found, error) {
  if (error?.isOfToken) refused(error.message);
  if (view === "overview") problem(found ? "" : "The hub does not answer; trying again.");
  if (!found) return;
  if (view === "overview") overview.show(found);
  if (view === "admin") status.showHub(found);
  const set = found.sets.find(({ name }) => name === chosen?.name);
  if (set && view === "set") showFigures(set, Date.parse(found.now));
}

async function showFigures(set, now) {
  const [before, readers] = [figures, status.readersOf(set)];
  figures = set;
  byId("today").textContent = number(set.changes_today);
  byId("readers").textContent = number(readers);
  byId("last").textContent = ago([set.newest ?? "", changes.last() ?? ""].sort()[1], now);
  picture.seen(set.newest ?? "", readers);
  if (before.newest === set.newest && before.name) return;
  try {
    const count = await status.resources(set.name);
    if (set.name === chosen?.name) byId("resources").textContent = number(count);
  } catch { // asked again after the next change
    figures = { ...set, newest: undefined };
  }
}

// The token ---------------------------------------------------------------------------------------

function useToken(secret) {
  try {
    keep(secret);
    tell(answer, ""); // the message about the token before
    show();
  } catch (error) {
    refused(error.message);
  }
}

/** There is no token any more: it is none, was revoked, or has expired. */
function refused(reason) {
  forget();
  key.open = true;
  tell(answer, `The token is forgotten: ${reason}.`, true);
}

function forget() {
  keep("");
  useRights({});
  tell(answer, "");
  show();
}

/** Show the forms of what may be done, and no others. */
function useRights(allowed) {
  const [isUsed, wasUsed] = [token() !== "", key.classList.contains("used")];
  rights = allowed;
  for (const id of ["publishing", "try"]) byId(id).hidden = !rights.publish;
  const may = byId("may-not");
  may.hidden = rights.publish;
  may.firstElementChild.textContent = isUsed ? "Your token may not publish to this set." : "Making changes needs a token.";
  if (isUsed === wasUsed) return;
  const place = byId("no-token");
  byId("secret").value = "";
  // A browser takes the focus from what is hidden only when it draws the page again.
  if (isUsed && place.contains(document.activeElement)) key.firstElementChild.focus();
  place.hidden = isUsed;
  byId("forget").hidden = !isUsed;
  key.classList.toggle("used", isUsed);
  key.firstElementChild.textContent = isUsed ? "Token in use" : "Use a token";
  byId("publishing").open = isUsed;
  if (isUsed) tell(answer, rights.admin ? "You use the admin token." : "Your token is known.");
}

/** The field of the token lies over the page. */
function closeKey() {
  if (key.contains(document.activeElement)) key.firstElementChild.focus();
  key.open = false;
}

changes.watch();
picture.watch();
publishing.watchForm(() => following);
debugging.watchForm(() => chosen?.name);
administration.watchForms(show);
document.onclick = clicked;
onpopstate = () => show({ isMove: true });
onhashchange = () => { if (takeFromAddress()) useToken(token()); };
document.onkeydown = (event) => { if (event.key === "Escape") closeKey(); };
byId("find").oninput = () => { clearTimeout(timer); timer = setTimeout(watch, TYPING_MS); };
byId("token").onsubmit = (event) => {
  event.preventDefault();
  useToken(byId("secret").value.trim());
};
byId("forget").onclick = forget;
byId("use-token").onclick = () => {
  key.open = true;
  byId("secret").focus();
};
show();
