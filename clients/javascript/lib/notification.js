// A notification: its changes, the interval that they cover, their positions.
//
// Positions never run backwards within one; a change that does not say when it happened has the
// position of the one before it. Version 0.8 says no interval, so it joins nothing.

import { parseDocument, timed as withTimes, timedChanges } from "./document.js";
import { Rejected } from "./errors.js";
import { positionOf } from "./position.js";

/** `{payload, from, until, timed, joins}`; `timed` is `[{position, change}]`. */
export function readNotification(payload) {
  if (typeof payload !== "string") return readMessages(payload);
  const { md, entries } = parseDocument(payload);
  const told = { from: positionOf(md.from), until: positionOf(md.until) };
  const timed = timedChanges(entries, told.from);
  const from = told.from ?? timed[0]?.position;
  const until = told.until ?? timed.at(-1)?.position;
  if (from === undefined || until === undefined) {
    throw new Rejected("the notification says neither an interval nor when anything happened");
  }
  const joins = told.from !== undefined && told.until !== undefined;
  return { payload, from, until, timed, joins };
}

/** The same of what a stream answers; it has no XML, so the payload is empty. */
function readMessages({ messages, after, until }) {
  const all = messagesIn(messages);
  const changes = all.filter(isChange).map(changeIn);
  const others = all.length - changes.length;
  if (others) console.warn(`skipped: messages of a stream that are no changes: ${others}`);
  return { payload: "", from: after, until, timed: withTimes(changes, after), joins: true };
}

function messagesIn(text) {
  try {
    const found = JSON.parse(text);
    if (Array.isArray(found)) return found;
  } catch {
    // said below
  }
  throw new Rejected("the answer of a stream is no array in JSON");
}

function isChange(message) {
  return typeof message?.loc === "string" && typeof message.change === "string";
}

/** As an event of XML has it, where the index is a link. */
function changeIn({ index, links = [], ...change }) {
  const above = typeof index === "string" ? [{ rel: "index", href: index }] : [];
  return { ...change, links: [...(Array.isArray(links) ? links : []), ...above] };
}

/** Each change with the `position` from which whoever has dealt with it goes on. */
export function withPositions({ from, until, timed }) {
  let reached = from;
  return timed.map(({ position, change }, index) => {
    const isLast = index === timed.length - 1;
    if (isLast) reached = until;
    else if (position !== timed[index + 1].position) reached = position;
    return { ...change, position: reached };
  });
}
