/**
 * What the hub says of itself, asked for again and again while the page is looked at.
 */

import { get, setPath } from "./api.js";
import { byId, element, number } from "./dom.js";

const PAUSE_MS = 2000;
const SHARE = 5; // an answer that takes long is asked for less often

let timer = 0;
let turn = 0;

/** `query()` says of which sets; `done` gets each answer, or null and the error. */
export async function watch(query, done) {
  clearTimeout(timer);
  turn += 1;
  const [begun, mine] = [performance.now(), turn];
  if (!document.hidden) {
    const answer = await get("api/status", query()).then((status) => [status], (error) => [null, error]);
    if (mine !== turn) return; // it is asked for again already
    done(...answer);
    if (mine !== turn) return;
  }
  timer = setTimeout(() => watch(query, done), PAUSE_MS + SHARE * (performance.now() - begun));
}

/** How many resources a set has now. */
export const resources = async (set) => (await get(`${setPath(set)}/resources`)).resources;

export const readersOf = (set) =>
  set.channels.flatMap(({ readers }) => Object.values(readers)).reduce((sum, each) => sum + each, 0);

/** The figures of the operator. */
export function showHub({ rates, store, following, processes = [], websub }) {
  const figures = [
    ["changes a second", rates.changes_per_second.toFixed(1)],
    ["notifications to readers, a second", rates.notifications_per_second.toFixed(1)],
    ["calls of WebSub callbacks, a second", rates.deliveries_per_second.toFixed(1)],
    ["store", store.text],
    ["last look for new changes", `${following.age_seconds.toFixed(1)} s ago`],
    ...processes.map(({ name, ready, reason }) => [`process ${name}`, ready ? "ready" : reason]),
  ];
  if (websub) {
    const places = Object.entries(websub.subscribers).filter(([, count]) => count);
    const seconds = websub.oldest_undelivered_seconds;
    figures.push(
      ["WebSub subscribers", places.map(([place, count]) => `${number(count)} ${place}`).join(", ") || "none"],
      ["oldest change not delivered", seconds ? `${seconds.toFixed(1)} s old` : "none"],
    );
  }
  byId("numbers").replaceChildren(...figures.flatMap(
    ([name, value]) => [element("dt", { textContent: name }), element("dd", { textContent: value })]));
}
