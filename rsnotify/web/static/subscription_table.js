/** The WebSub subscriptions: where each stands, retried and ended. */

import { ask } from "./api.js";
import { action, looking, undoable } from "./acts.js";
import { day, foreign, row } from "./dom.js";
import { listing } from "./listing.js";

const COLUMNS = ["Callback", "Channel", "Behind", "Last answer", "Next attempt", "Actions"];
const subscriptions = listing("subscriptions", "WebSub subscriptions", COLUMNS, draw, { key: ({ id }) => id, made, fill });
let all = [];

export const look = looking("api/subscriptions", (those) => {
  all = those;
  draw();
}, subscriptions.failed);

function draw() {
  subscriptions.showOf(all, ({ callback, set }) => `${callback} ${set}`);
}

function made({ id, callback, set, kind }) {
  const path = `api/subscriptions/${id}`;
  const then = (method, address) => async () => {
    await ask(method, address);
    look();
  };
  return row(foreign(callback), `${set} ${kind}`, "", "", "", [
    action("Retry", callback, then("POST", `${path}/retry`)), " ", undoable("End", callback, then("DELETE", path))]);
}

function fill({ cells }, { behind_seconds: behind, last_answer: last, failures, next_attempt: next }) {
  cells[2].textContent = behind === null ? "the set is gone" : `${Math.round(behind)} s`;
  cells[3].replaceChildren(foreign(`${last ?? "none yet"}${failures ? ` (${failures} failures)` : ""}`));
  cells[4].textContent = next ? day(next) : "";
}
