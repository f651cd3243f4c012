/** The operator's figures; for the admin sets, tokens and WebSub subscriptions. */

import { notDone } from "./asking.js";
import { make, number, say, the } from "./dom.js";
import { problem, rights } from "./here.js";
import { goOn } from "./lines.js";
import { watchSets } from "./set_table.js";
import { watch } from "./status.js";
import * as subscriptions from "./subscription_table.js";
import * as tokens from "./token_table.js";

the.admin.hidden = !rights.admin;
the["not-admin"].hidden = rights.admin;
if (rights.admin) {
  watchSets(showHub);
  tokens.look();
  subscriptions.look();
  sayWhatWasNotDone();
  addEventListener("pageshow", sayWhatWasNotDone);
} else watch(() => ({ limit: 1 }), showHub);

function sayWhatWasNotDone() {
  const words = notDone();
  if (words) say(the["admin-answer"], `Not done, because the page was left before: ${words}`, true);
}

function showHub(status) {
  problem(status ? "" : "The hub does not answer; trying again.");
  if (!status) return;
  the["no-figures"].hidden = true;
  goOn(status);
  const { rates: { deliveries_per_second: deliveries }, store, following, warnings = [], processes = [], websub } = status;
  const figures = [
    ["store", store.text],
    ...warnings.map((each) => ["warning", each]),
    ["following", following.text],
    ["WebSub deliveries a second", deliveries],
    ...Object.entries(websub?.subscribers ?? {}).map(([place, count]) => [`WebSub subscribers ${place}`, count]),
    ["oldest undelivered change, seconds", websub?.oldest_undelivered_seconds ?? 0],
    ...processes.map(({ name, ready, reason }) => [`process ${name}`, ready ? "ready" : reason]),
  ];
  the.numbers.replaceChildren(...figures.flatMap(([name, value]) => [
    make.dt({}, name.replaceAll("_", " ")), make.dd({}, typeof value === "number" ? number(value) : value)]));
}
