/** The set's channel, followed by the JavaScript client; and how far this page has got. */

import { address, channelOf, read } from "./api.js";
import { notifications, parseDocument } from "./client/rsnotify.js";
import { set } from "./here.js";
import { token } from "./token.js";

const NOT_KEPT = [400, 410]; // the hub has no history there
export const PAST = 50; // changes that are shown of what was before

export let cursor = null; // everything up to it has been handed on
export let isLost = false; // nothing comes now
export let transport = ""; // over which it came last
let heard = {};
let name = set?.name; // of the set that is followed
let leaving = new AbortController();
let begun = null; // where this page began
let hasPast = false;

/** `from` a position or `until` one; so many changes at most. */
export async function history(part, limit = PAST) {
  const query = new URLSearchParams({ ...part, limit });
  const { entries } = parseDocument(await read(address(`${name}/changelist.xml?${query}`)));
  return entries.map(({ loc, md: { change = "", datetime = "" } }) => ({ loc, change, datetime }));
}

/** `by` has `notification(changes)`, `state(text, isBad, why)` and `gap(after, from)`; and, for what was before, `began()` and `past(changes)`. */
export function follow(by, other = name) {
  leaving.abort();
  heard = by;
  if (other !== name) [name, cursor, begun, hasPast] = [other, null, null, false];
  join();
}

export function cut() {
  leaving.abort();
  become("cut by you", true);
}

/** From the cursor on, if there is one. */
export async function join() {
  leaving = new AbortController();
  const { signal } = leaving;
  const options = {
    position: cursor,
    token: token(),
    signal,
    onGap: ({ from, until }) => heard.gap(from, until),
    onState: (state) => { if (!signal.aborted) stands(state); },
  };
  try {
    for await (const { until, timed } of notifications(channelOf(name), options)) {
      cursor = until;
      heard.notification(timed.map(({ position, change: { change = "", loc } }) => ({ loc, change, datetime: position })));
    }
  } catch ({ message }) {
    become(`stopped: ${message}`, true);
  }
}

function stands({ state, position, error, transport: over }) {
  if (state === "waiting") become("connection lost; trying again", true, error.message);
  else if (state === "catching-up") become("catching up…");
  else {
    cursor = position ?? cursor;
    transport = over;
    if (begun === null) {
      begun = position;
      heard.began?.();
    }
    if (!hasPast && heard.past) past();
    become("live");
  }
}

/** What was before this page began; if it cannot be had now, it is asked for with the next connection. */
async function past() {
  hasPast = true;
  try {
    heard.past(await history({ until: begun }));
  } catch ({ status }) {
    hasPast = NOT_KEPT.includes(status);
  }
}

function become(text, isBad = false, why = "") {
  isLost = isBad;
  heard.state(text, isBad, why);
}
