/**
 * What the hub says of itself, asked for again and again while the page is looked at.
 */

import { ask } from "./api.js";
import { byId, element, number } from "./dom.js";

const PAUSE_MS = 2000;
const SHARE = 5; // an answer that takes long is asked for less often

let timer = 0;
let turn = 0;

/** Ask for ever; `query()` says of which sets, `done` gets each answer or null, `refused` why the token is not accepted. */
export async function watch(query, done, refused) {
  clearTimeout(timer);
  turn += 1;
  const [begun, mine] = [performance.now(), turn];
  let status;
  if (!document.hidden) {
    try {
      status = await ask("GET", `api/status?${new URLSearchParams(query())}`);
    } catch (error) {
      status = null;
      if (mine === turn && error.isOfToken) refused(error.message);
    }
  }
  if (mine !== turn) return; // it is asked for again already
  if (status !== undefined) done(status);
  timer = setTimeout(() => watch(query, done, refused), PAUSE_MS + SHARE * (performance.now() - begun));
}

/** How many resources a set has now. */
export const resources = async (set) => (await ask("GET", `api/sets/${encodeURIComponent(set)}/resources`)).resources;

export const readersOf = (set) =>
  set.channels.flatMap(({ readers }) => Object.values(readers)).reduce((sum, each) => sum + each, 0);

/** The figures of the operator. */
export function showHub(status) {
  byId("numbers").replaceChildren(...(status ? [...ofHub(status), ...ofWebSub(status.websub)] : []).flatMap(
    ([name, value]) => [element("dt", { textContent: name }), element("dd", { textContent: value })]));
}

const ofHub = ({ rates, store, following, processes = [] }) => [
  ["changes a second", rates.changes_per_second.toFixed(1)],
  ["notifications to readers, a second", rates.notifications_per_second.toFixed(1)],
  ["calls of WebSub callbacks, a second", rates.deliveries_per_second.toFixed(1)],
  ["store", store.text],
  ["last look for new changes", `${following.age_seconds.toFixed(1)} s ago`],
  ...processes.map(({ name, ready, reason }) => [`process ${name}`, ready ? "ready" : reason]),
];

function ofWebSub(websub) {
  if (!websub) return [];
  const places = Object.entries(websub.subscribers).filter(([, count]) => count);
  const seconds = websub.oldest_undelivered_seconds;
  return [
    ["WebSub subscribers", places.map(([place, count]) => `${number(count)} ${place}`).join(", ") || "none"],
    ["oldest change not delivered", seconds ? `${seconds.toFixed(1)} s old` : "none"],
  ];
}
