/**
 * What the hub says of itself, asked for again and again while the page is looked at.
 */

import { ask } from "./api.js";
import { byId, element } from "./dom.js";

const PAUSE_MS = 2000;
const SHARE = 5; // an answer that takes long is asked for less often

let latest = null;

/** Ask for ever, of one set. `refused` is told why the token of this tab is not accepted any more. */
export async function watch(chosenSet, refused) {
  const begun = performance.now();
  if (!document.hidden) {
    try {
      latest = await ask("GET", `api/status?limit=1&name=${encodeURIComponent(chosenSet())}`);
    } catch (error) {
      latest = null;
      if (error.isOfToken) refused(error.message);
    }
  }
  setTimeout(() => watch(chosenSet, refused), PAUSE_MS + SHARE * (performance.now() - begun));
}

/** Notifications to readers and to callbacks, a second, of the whole hub. */
export function deliveriesPerSecond() {
  const rates = latest?.rates;
  return rates ? rates.notifications_per_second + rates.deliveries_per_second : 0;
}

/** Names and values to show, of this set and of the hub. */
export function numbers(setName) {
  if (!latest) return [];
  const set = latest.sets.find(({ name }) => name === setName);
  return [...(set ? ofSet(set) : []), ...ofHub(latest), ...(latest.websub ? ofWebSub(latest.websub) : [])];
}

function ofSet(set) {
  const all = set.channels.flatMap(({ readers }) => Object.values(readers));
  const behind = set.channels.reduce((sum, channel) => sum + channel.behind, 0);
  const seconds = Math.max(...set.channels.map((channel) => channel.behind_seconds));
  return [
    ["readers of this set now", count(all.reduce((sum, each) => sum + each, 0))],
    ["of these behind", behind ? `${count(behind)}, by ${seconds.toFixed(1)} s at most` : "none"],
    ["changes kept", count(set.changes)],
    ["resources in the Resource List", count(set.resources)],
  ];
}

const ofHub = ({ rates, store, following }) => [
  ["changes a second, whole hub", rates.changes_per_second.toFixed(1)],
  ["deliveries a second, whole hub", deliveriesPerSecond().toFixed(1)],
  ["store", store.text],
  ["last look for new changes", `${following.age_seconds.toFixed(1)} s ago`],
];

function ofWebSub({ subscribers, oldest_undelivered_seconds: seconds }) {
  const places = Object.entries(subscribers).filter(([, number]) => number);
  return [
    ["WebSub subscribers", places.map(([place, number]) => `${count(number)} ${place}`).join(", ") || "none"],
    ["oldest change not delivered", seconds ? `${seconds.toFixed(1)} s old` : "none"],
  ];
}

const count = (number) => (number === null ? "none yet" : number.toLocaleString("en"));

export function show(rows) {
  byId("numbers").replaceChildren(...rows.flatMap(([name, value]) => [
    element("dt", { textContent: name }), element("dd", { textContent: value }),
  ]));
}
