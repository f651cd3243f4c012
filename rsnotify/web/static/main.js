/**
 * Puts the page together: the address says which view and which set, the token opens what it may.
 */

import * as administration from "./administration.js";
import { ask, channelOf, HOME, send } from "./api.js";
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
let view = "overview";
let chosen = null; // the set, as the hub describes it
let following = null;
let shows = 0; // how often the address was looked at
let used = 0; // how often a token was
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
    if (turn !== shows) return;
    view = asked.get("view") in VIEWS ? asked.get("view") : set || asked.get("set") ? "set" : "overview";
    if (view === "set" && !name) view = "overview";
    choose(set);
    problem(OF_A_SET.includes(view) && !set ? missing(name) : "");
  } catch (error) {
    if (turn !== shows) return;
    problem(error.message);
    if (error.isOfToken) forget();
    timer = setTimeout(show, RETRY_MS);
    return;
  }
  draw(isMove);
  if (view === "set" && chosen && asked.get("from")) showMoment(asked.get("from"), turn);
  if (view === "validator") validating.open(asked.get("document"));
  if (view === "admin") administration.showSets();
  watch();
}

/** The set that the address names. Where it names none, it is the one before, or the only one there is. */
async function wanted(asked) {
  const name = asked.get("set") ?? (OF_A_SET.includes(asked.get("view")) ? chosen?.name : null);
  if (name) return { name, set: (await ask("GET", `api/sets?${new URLSearchParams({ name })}`))[0] };
  if (asked.has("view") && !OF_A_SET.includes(asked.get("view"))) return { set: chosen };
  const [first, second] = await ask("GET", "api/sets?limit=2");
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
    each.hidden = each.dataset.view !== view || (each.dataset.view === "set" && !chosen);
  }
  for (const link of document.querySelectorAll("nav a")) {
    const url = new URL(link.href);
    if (chosen) url.searchParams.set("set", chosen.name);
    link.href = url.search;
    if (url.searchParams.get("view") === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
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
  publishing.forget();
  debugging.reset();
  if (!chosen) return;
  for (const place of document.querySelectorAll(".set-name")) place.textContent = chosen.name;
  for (const id of ["resources", "today", "last", "readers"]) byId(id).textContent = "–";
  byId("is-private").hidden = !chosen.private;
  snippets.show(chosen);
  validating.offer(snippets.documentsOf(chosen.name));
  tell(byId("health"), "connecting…");
  following = new Following(chosen.name, { isPrivate: chosen.private, heard });
  picture.show(chosen.name, following);
}

const heard = {
  state: (text, isBad) => {
    tell(byId("health"), text, isBad);
    publishing.channelIs(!isBad);
    if (!isBad) picture.joined();
  },
  gap: (after, from) => {
    changes.addGap(after, from);
    picture.gap();
  },
  past: (past) => {
    changes.addPast(past);
    publishing.arrived(past); // also what was published while the channel was opened
  },
  notification: ({ changes: those, until }) => {
    changes.add(those);
    publishing.arrived(those);
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

function watch() {
  const query = () => (view === "overview" ? { limit: overview.SHOWN + 1, search: byId("find").value.trim() }
    : { limit: 1, name: chosen?.name ?? "" });
  status.watch(query, showStatus, refused);
}

function showStatus(found) {
  if (view === "overview" && !found) problem("The hub does not answer; trying again.");
  else if (view === "overview") {
    problem("");
    overview.show(found);
  } else if (view === "admin") status.showHub(found);
  const set = found?.sets.find(({ name }) => name === chosen?.name);
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

const answer = byId("token").querySelector(".answer");

async function useToken(secret) {
  tell(answer, ""); // the message about the token before
  used += 1;
  const turn = used;
  try {
    keep(secret);
    const isAdmin = await administration.show();
    if (turn !== used) return;
    tell(answer, isAdmin ? "You use the admin token." : "Your token is known.");
    showToken(true);
    await show();
  } catch (error) {
    if (turn !== used) return;
    forget();
    byId("key").open = true;
    tell(answer, error.message, true);
    if (!view || !chosen) show();
  }
}

function forget() {
  used += 1;
  keep("");
  showToken(false);
  administration.hide();
  tell(answer, "");
}

function showToken(isUsed) {
  const place = byId("no-token");
  byId("secret").value = "";
  // A browser takes the focus from what is hidden only when it draws the page again.
  if (isUsed && place.contains(document.activeElement)) byId("key").firstElementChild.focus();
  place.hidden = isUsed;
  byId("forget").hidden = !isUsed;
  byId("key").classList.toggle("used", isUsed);
  byId("key").firstElementChild.textContent = isUsed ? "Token in use" : "Use a token";
  byId("publishing").open = isUsed;
}

/** The token was revoked, or has expired, while the page used it. */
function refused(reason) {
  forget();
  byId("key").open = true;
  tell(answer, `The token is forgotten: ${reason}.`, true);
  show();
}

/** The field of the token lies over the page. */
function closeKey() {
  const isIn = byId("key").contains(document.activeElement);
  byId("key").open = false;
  if (isIn) byId("key").firstElementChild.focus();
}

function start() {
  changes.watch();
  picture.watch();
  publishing.watchForm(() => chosen?.name);
  debugging.watchForm(() => chosen?.name);
  validating.watchForm();
  administration.watchForms(show);
  document.onclick = clicked;
  onpopstate = () => show({ isMove: true });
  onhashchange = () => { if (takeFromAddress()) useToken(token()); };
  document.onkeydown = ({ key }) => { if (key === "Escape") closeKey(); };
  byId("find").oninput = () => { clearTimeout(timer); timer = setTimeout(watch, TYPING_MS); };
  byId("token").onsubmit = (event) => {
    event.preventDefault();
    useToken(byId("secret").value.trim());
  };
  byId("forget").onclick = () => { forget(); show(); };
  if (token()) useToken(token());
  else show();
}

start();
