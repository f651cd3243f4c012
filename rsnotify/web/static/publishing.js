/**
 * The form that publishes one change, and says when it came back over the channel.
 */

import { ask } from "./api.js";
import { byId, tell } from "./dom.js";

const REMEMBERED = 200;
const arrivals = new Map(); // when each of the newest changes arrived, by its datetime
const waiting = new Map();

/** Changes have come over the channel. */
export function arrived(changes) {
  for (const { datetime } of changes.slice(-REMEMBERED)) {
    arrivals.set(datetime, performance.now());
    waiting.get(datetime)?.();
  }
  for (const datetime of arrivals.keys()) {
    if (arrivals.size <= REMEMBERED) break;
    arrivals.delete(datetime);
  }
}

export function watchForm(chosenSet) {
  const form = byId("publish");
  const answer = form.querySelector(".answer");
  form.onsubmit = async (event) => {
    event.preventDefault();
    const begun = performance.now();
    tell(answer, "Sending…");
    try {
      const path = `api/sets/${encodeURIComponent(chosenSet())}/changes`;
      const { until } = await ask("POST", path, { loc: form.loc.value, change: form.change.value });
      tell(answer, "Stored. Waiting for it on the channel…");
      const then = await arrivalOf(until);
      tell(answer, `It arrived ${Math.max(1, Math.round(then - begun))} ms after you pressed Publish.`);
    } catch (error) {
      tell(answer, `Not published: ${error.message}`, true);
      if (error.status === 401) byId("secret").focus();
    }
  };
}

async function arrivalOf(datetime) {
  if (!arrivals.has(datetime)) {
    await new Promise((resolve) => { waiting.set(datetime, resolve); });
    waiting.delete(datetime);
  }
  return arrivals.get(datetime);
}
