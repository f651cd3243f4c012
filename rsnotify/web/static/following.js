/** The set's channel, followed across lost connections: each change once, none left out. */

import { address, channelOf, read, send } from "./api.js";
import { connect } from "./connection.js";
import { set } from "./here.js";
import { parse } from "./notification.js";

const FIRST_MS = 500;
const LONGEST_MS = 15_000;
const REFUSALS = 2; // one alone may be of a hub that was restarted meanwhile
const NOT_KEPT = [400, 410, 4400, 4410]; // the hub no longer knows the cursor
export const PAST = 50; // changes that are shown of what was before

export let cursor = null; // everything up to it has been handed on
export let isLost = false; // nothing comes now
let heard = {};
let end = () => {};
let timer = 0;
let isCut = false;
let failures = 0;
let refusals = 0; // of WebSockets, by a hub that answers

export const delay = (before, chance) => Math.min(LONGEST_MS, FIRST_MS * 2 ** before) * (0.5 + chance / 2);

/** `from` a position or `until` one. */
export const history = async (part) => parse(await read(address(
  `${set.name}/changelist.xml?${new URLSearchParams({ ...part, limit: PAST })}`))).changes;

/** `by` has `past(changes)`, `notification(changes)`, `state(text, isBad)` and `gap(after, from)`. */
export function follow(by) {
  heard = by;
  go();
}

export function cut() {
  isCut = true;
  clearTimeout(timer);
  end();
  become("cut by you", true);
}

export function join() {
  isCut = false;
  go();
}

function become(text, isBad) {
  isLost = isBad;
  heard.state(text, isBad);
}

async function go() {
  try {
    if (cursor === null) await begin();
  } catch ({ message, status }) {
    ended({ reason: message, isFinal: [401, 403, 404].includes(status) });
    return;
  }
  if (isCut) return;
  // Only a stream takes a token in a header; but a browser opens six of them at most.
  const transport = set.private || refusals >= REFUSALS ? "stream" : "websocket";
  const opened = () => {
    failures = 0;
    become("live");
  };
  end = connect(transport, channelOf(set.name), cursor, { opened, frame, ended });
}

async function begin() {
  const answer = await send("GET", channelOf(set.name)); // not HEAD: an error has its reason in the body
  answer.body?.cancel();
  const head = answer.headers.get("rsnotify-from");
  const changes = await history({ until: head }).catch((error) => {
    if (NOT_KEPT.includes(error.status)) return [];
    throw error;
  });
  if (isCut) return;
  cursor = head;
  heard.past(changes);
}

function frame(text) {
  const notification = parse(text);
  if (!(notification.until > cursor)) return;
  if (notification.from !== cursor) heard.gap(cursor, notification.from);
  cursor = notification.until;
  heard.notification(notification.changes);
}

function ended({ code, reason, isFinal, isRefused }) {
  if (isCut) return;
  refusals = isRefused ? refusals + 1 : 0;
  if (NOT_KEPT.includes(code)) {
    heard.gap(cursor, null);
    cursor = null;
  } else if (isFinal) {
    become(`stopped: ${reason}`, true);
    return;
  }
  timer = setTimeout(go, delay(failures, Math.random()));
  failures += 1;
  become(`connection lost${reason ? `: ${reason}` : ""}; trying again`, true);
}
