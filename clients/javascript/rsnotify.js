// rsnotify: follow what changes at any ResourceSync Source, and publish changes to a hub.
//
//   for await (const { change, loc } of follow("https://example.org/")) console.log(change, loc);
//
// For browsers, Node 20 or later, Deno. No dependencies, nothing to build.

import { Follower } from "./lib/follower.js";
import { withPositions } from "./lib/notification.js";
import { later } from "./lib/position.js";
import { sharedNotifications } from "./lib/shared.js";

export { parseDocument } from "./lib/document.js";
export { HistoryGone, Rejected, TryAgain } from "./lib/errors.js";
export { publish } from "./lib/publish.js";

/**
 * Every change of the Source at any address, once and in order, as it happens.
 *
 * Each change has a `position`: keep it when you have dealt with the change, and give it as the
 * option `position` to go on another day. Without it, it begins now. It ends when `signal` is aborted.
 */
export async function* follow(url, options = {}) {
  let before;
  for await (const received of notifications(url, options)) {
    if (received.until < before) before = undefined; // the Source was set back
    for (const change of withPositions(received)) {
      before = later(change.position, before);
      yield { ...change, position: before };
    }
  }
}

/** The same, notification by notification: `{payload, from, until, timed, joins}`. */
export function notifications(url, options = {}) {
  const source = options.shared ? sharedNotifications(url, options) : new Follower(url, options);
  return source[Symbol.asyncIterator]();
}
