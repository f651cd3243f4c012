/**
 * Puts the parts of the page together: the chosen set is followed, the token opens what it may.
 */

import * as administration from "./administration.js";
import { ask } from "./api.js";
import * as debugging from "./debugging.js";
import { byId, tell } from "./dom.js";
import { Following } from "./following.js";
import * as latest from "./latest.js";
import * as plot from "./plot.js";
import * as publishing from "./publishing.js";
import * as sets from "./sets.js";
import * as status from "./status.js";
import { keep, takeFromAddress, token } from "./token.js";
import * as validating from "./validating.js";

const RETRY_MS = 2000;
const TYPING_MS = 200; // after the last key, until sets are looked for
const changes = new plot.Rate();
const deliveries = new plot.Rate();
let known = null;
let following = null;
let seen = 0;
let search = 0; // the timer of the next one
let asked = 0; // how often the sets were
let used = 0; // how often a token was

const chosenSet = () => byId("set").value;

// The chosen set ----------------------------------------------------------------------------------

function follow(set) {
  following?.stop();
  following = null;
  latest.clear();
  publishing.forget();
  changes.clear();
  debugging.reset();
  seen = 0;
  if (!set) {
    tell(byId("health"), "there is no set yet: add one under Administration", true);
    return;
  }
  sets.show(set);
  history.replaceState(null, "", `?set=${encodeURIComponent(set.name)}${location.hash}`);
  tell(byId("health"), "connecting…");
  following = new Following(set.name, { isPrivate: set.private, heard });
}

const heard = {
  state: (text, isBad) => {
    tell(byId("health"), text, isBad);
    publishing.channelIs(!isBad);
  },
  gap: (after, from) => latest.addGap(after, from),
  notification: (notification, { isOld }) => {
    latest.add(notification.changes);
    publishing.arrived(notification.changes); // also what was published while the channel was opened
    if (isOld) return;
    seen += notification.changes.length;
    changes.add(notification.changes.length);
  },
};

async function loadSets() {
  const wanted = following?.set ?? new URLSearchParams(location.search).get("set");
  asked += 1;
  const turn = asked;
  try {
    const found = await sets.find(byId("find").value.trim(), wanted);
    if (turn !== asked) return; // it is asked for again already
    known = found;
  } catch (error) {
    if (turn !== asked) return;
    tell(byId("health"), error.message, true);
    if (error.isOfToken) forget(); // it was revoked
    searchAfter(RETRY_MS);
    return;
  }
  administration.showSets(known.found, known.hasMore);
  const chosen = sets.offer(known, wanted);
  const isSame = following && chosen?.name === following.set && chosen.private === following.isPrivate;
  if (!isSame || following.hasStopped) follow(chosen);
}

function searchAfter(milliseconds) {
  clearTimeout(search);
  search = setTimeout(loadSets, milliseconds);
}

// The token ---------------------------------------------------------------------------------------

async function useToken(secret) {
  const place = byId("token").querySelector(".answer");
  tell(place, ""); // the message about the token before
  used += 1;
  const turn = used;
  try {
    keep(secret);
    const isAdmin = await administration.show();
    if (turn !== used) return false; // another one is used by now
    tell(place, isAdmin ? "You use the admin token." : "Your token is known.");
    showToken(true);
    await loadSets();
    return true;
  } catch (error) {
    if (turn !== used) return false;
    forget();
    tell(place, error.message, true);
    return false;
  }
}

/** The token that stands in its field, if one does; whether there is one now. */
async function useTyped() {
  const secret = byId("secret").value.trim();
  return secret ? useToken(secret) : Boolean(token());
}

function forget() {
  used += 1;
  keep("");
  showToken(false);
  administration.hide();
  tell(byId("token").querySelector(".answer"), "");
}

function showToken(isUsed) {
  const place = byId("no-token");
  byId("secret").value = "";
  // A browser takes the focus from what is hidden only when it draws the page again.
  if (isUsed && place.contains(document.activeElement)) document.activeElement.blur();
  place.hidden = isUsed;
  byId("forget").hidden = !isUsed;
}

/** The token was revoked, or has expired, while the page used it. */
function refused(reason) {
  forget();
  tell(byId("token").querySelector(".answer"), `The token is forgotten: ${reason}.`, true);
  loadSets();
}

// Numbers -----------------------------------------------------------------------------------------

function drawNumbers() {
  deliveries.add(status.deliveriesPerSecond());
  if (document.hidden) return;
  plot.draw(changes, deliveries);
  status.show([
    ["changes a second, this set", plot.mean(changes).toFixed(1)],
    ["changes since you came", seen.toLocaleString("en")],
    ...status.numbers(chosenSet()),
  ]);
}

function start() {
  latest.watchPause();
  publishing.watchForm(chosenSet, useTyped);
  debugging.watchForm(chosenSet);
  validating.watchForm();
  administration.watchForms(loadSets);
  byId("set").onchange = () => {
    follow(sets.named(known, chosenSet()));
    loadSets(); // an answer that is still to come would choose the set of before
  };
  byId("find").oninput = () => searchAfter(TYPING_MS);
  byId("token").onsubmit = async (event) => {
    event.preventDefault();
    const isUsed = await useTyped();
    const isFree = document.activeElement === document.body;
    if (isUsed && isFree) byId("loc").focus(); // not while something else is typed already
  };
  byId("forget").onclick = () => { forget(); loadSets(); };
  onhashchange = () => { if (takeFromAddress()) useToken(token()); };
  setInterval(drawNumbers, 1000);
  drawNumbers();
  status.watch(chosenSet, refused);
  if (token()) useToken(token());
  else loadSets();
}

start();
