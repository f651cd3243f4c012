/** A set: its figures, its changes, and a form to publish one. */

import { ask, SAMPLE, setPath } from "./api.js";
import * as changes from "./changes.js";
import { countDocuments, showDocuments } from "./documents.js";
import { ago, number, submits, say, the } from "./dom.js";
import * as following from "./following.js";
import { rights, set } from "./here.js";
import * as picture from "./picture.js";
import "./snippets.js";
import { count, readersOf, watch } from "./status.js";
import * as timeline from "./timeline.js";
import { token } from "./token.js";

const answer = the.publish.querySelector("output");
let told = null; // how many readers the hub has counted
let waiting = null; // for the last change published: `{until, begun}`

the["is-private"].hidden = !set.private;
for (const id of ["publishing", "try"]) the[id].hidden = !rights.publish;
the["may-not"].hidden = rights.publish;
the.loc.value = SAMPLE;
the["may-not"].firstElementChild.textContent = token() ? "Your token may not publish to this set." : "Making changes needs a token.";

showDocuments();
timeline.open((stretch) => {
  const asked = new URLSearchParams({ set: set.name, ...stretch });
  history.replaceState(history.state, "", `?${asked}`.replaceAll("%3A", ":")); // the address shares it
  changes.show(stretch);
});

following.follow({
  began: timeline.read,
  state: (text, isBad, why) => {
    say(the.health, text, isBad);
    the.health.title = why;
    look();
    showReaders();
    if (!isBad) picture.joined();
  },
  gap: (after, from) => {
    changes.addGap(after, from);
    timeline.read();
    picture.gap();
  },
  past: (past) => {
    changes.addPast(past);
    look(); // what was published while the channel was opened
  },
  notification: (those) => {
    changes.add(those);
    timeline.add(those);
    look();
    picture.arrived(those.length);
  },
});

watch(() => ({ limit: 1, name: set.name }), (status) => {
  const found = status?.sets[0];
  if (!found) return;
  const newest = found.newest ?? "";
  the.today.textContent = number(found.changes_today);
  told = readersOf(found);
  showReaders();
  the.last.textContent = ago([newest, changes.last() ?? ""].sort()[1], Date.parse(status.now));
  picture.seen(newest, readersOf(found));
  count(the.resources, found);
  countDocuments(found);
});

submits(the.publish, async ({ loc, change }) => {
  const begun = performance.now();
  waiting = null;
  say(answer, "Sending…");
  try {
    const { until } = await ask("POST", `${setPath(set.name)}/changes`, { loc: loc.value, change: change.value });
    waiting = { until, begun };
    look();
  } catch ({ message }) {
    say(answer, `Not published: ${message}`, true);
  }
});

/** This page is one of them, even if the hub counted before it was there. */
function showReaders() {
  const isReader = !following.isLost && following.cursor !== null;
  if (told !== null) the.readers.textContent = number(Math.max(told, isReader ? 1 : 0));
}

function look() {
  if (!waiting) return;
  if (following.cursor >= waiting.until) {
    say(answer, `It arrived ${Math.max(1, Math.round(performance.now() - waiting.begun))} ms after you pressed Publish.`);
    waiting = null;
  } else {
    say(answer, `Stored. ${following.isLost ? "Not seen here while the channel is not connected." : "Waiting for it on the channel…"}`);
  }
}
