/**
 * The form that publishes one change, and says when it came back over the channel.
 */

import { ask } from "./api.js";
import { byId, tell } from "./dom.js";
import { token } from "./token.js";

const REMEMBERED = 200;
const arrivals = new Map(); // when each of the newest changes arrived, by its datetime
let isConnected = false;
let channels = 0; // how many were followed
let waiting = null; // for the change that was published last: `{datetime, settle}`

/** Changes have come over the channel; all before them had come, or were there when it was opened. */
export function arrived(changes) {
  for (const { datetime } of changes.slice(-REMEMBERED)) {
    arrivals.set(datetime, performance.now());
    if (waiting && datetime >= waiting.datetime) {
      arrivals.set(waiting.datetime, performance.now());
      waiting.settle();
    }
  }
  for (const datetime of arrivals.keys()) {
    if (arrivals.size <= REMEMBERED) break;
    arrivals.delete(datetime);
  }
}

/** Another set was chosen: its changes say nothing of those of the set before. */
export function forget() {
  channels += 1;
  arrivals.clear();
  waiting?.settle();
}

/** Whether the channel brings anything now. */
export function channelIs(connected) {
  isConnected = connected;
  if (!connected) waiting?.settle();
}

export function watchForm(chosenSet) {
  const form = byId("publish");
  const answer = form.querySelector(".answer");
  form.onsubmit = async (event) => {
    event.preventDefault();
    if (!token()) {
      tell(answer, "Not published: publishing needs a token. Give it above.", true);
      byId("key").open = true;
      byId("secret").focus();
      return;
    }
    tell(answer, "Sending…");
    try {
      await publish(form, chosenSet(), answer);
    } catch (error) {
      tell(answer, `Not published: ${error.message}`, true);
    }
  };
}

async function publish(form, set, answer) {
  const [begun, channel] = [performance.now(), channels];
  const path = `api/sets/${encodeURIComponent(set)}/changes`;
  const { until } = await ask("POST", path, { loc: form.loc.value, change: form.change.value });
  tell(answer, "Stored. Waiting for it on the channel…");
  const then = channel === channels ? await arrivalOf(until) : undefined;
  if (channel !== channels) tell(answer, "Stored. It is not seen here, because another set was chosen.");
  else if (then === undefined) tell(answer, "Stored. It is not seen here, because the channel is not connected.", true);
  else tell(answer, `It arrived ${Math.max(1, Math.round(then - begun))} ms after you pressed Publish.`);
}

/** When it came over the channel; undefined if the channel is not connected. */
async function arrivalOf(datetime) {
  if (isConnected && !arrivals.has(datetime)) {
    await new Promise((settle) => { waiting = { datetime, settle }; });
    waiting = null;
  }
  return arrivals.get(datetime);
}
