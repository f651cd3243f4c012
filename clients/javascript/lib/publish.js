// Publish changes to a hub: one request, all or nothing, repeated safely until it is answered.

import { Rejected, TryAgain } from "./errors.js";
import { checkOptions, PUBLISH_OPTIONS } from "./options.js";
import { delaySeconds, sleep } from "./retry.js";
import { ANSWER_SECONDS, checkedUrl, httpTwin, refused, textOf, Web, withoutToken } from "./web.js";

export const GIVE_UP_SECONDS = 60;
const SLOWEST_CHARS = 16 * 1024; // of a body that are sent in a second
const KEY = /^[!-~]{1,255}$/;

/**
 * Publish one change or several to a set of the hub at `url`; gives `{accepted, from, until}`.
 *
 * A request that fails on the way is repeated with the same key, so it is stored once. `Rejected`
 * names each fault; `TryAgain` says that `giveUpSeconds` were over without an answer. Aborting
 * `signal` ends it with the signal's reason.
 */
export async function publish(url, set, changes, options = {}) {
  checkOptions(options, PUBLISH_OPTIONS);
  const { framework = false, key = randomKey(), signal } = options;
  const { giveUpSeconds = GIVE_UP_SECONDS } = options;
  if (!(giveUpSeconds >= 0)) {
    throw new Rejected(`giveUpSeconds is ${giveUpSeconds}: give seconds, 0 or more`);
  }
  if (typeof key !== "string" || !KEY.test(key)) {
    throw new Rejected(`the key is ${key}: give 1 to 255 visible characters of ASCII`);
  }
  const kind = framework ? "framework" : "changes";
  const address = new URL(
    `api/sets/${encodeURIComponent(set)}/${kind}`,
    `${httpTwin(checkedUrl(url)).replace(/\/$/, "")}/`,
  ).href;
  const request = {
    method: "POST",
    body: JSON.stringify(changes),
    headers: { "Content-Type": "application/json", "Idempotency-Key": key },
  };
  const web = new Web({ ...options, url: address });
  const end = performance.now() + giveUpSeconds * 1000;
  for (let attempt = 0; ; attempt++) {
    const left = (end - performance.now()) / 1000;
    const sending = ANSWER_SECONDS + (request.body?.length ?? 0) / SLOWEST_CHARS;
    const seconds = Math.min(sending, Math.max(left, ANSWER_SECONDS));
    try {
      return await contentOf(address, await web.ask(address, { ...request, seconds }));
    } catch (error) {
      signal?.throwIfAborted();
      const seconds = delaySeconds(attempt, Math.random(), error.retryAfter);
      const isOver = performance.now() + seconds * 1000 > end;
      if (!(error instanceof TryAgain) || isOver) throw error;
      await sleep(seconds, signal);
      signal?.throwIfAborted();
    }
  }
}

/** By what pages without TLS have, too; they have no `crypto.randomUUID`. */
function randomKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function contentOf(url, answer) {
  const content = await contentIn(answer);
  if (answer.ok && content?.accepted !== undefined) return content;
  const at = answer.redirected ? `${url}, redirected to ${withoutToken(answer.url)}` : url;
  if (answer.ok) throw new Rejected(`${at} answered what no hub does: is it a hub's address?`);
  const error = refused(at, answer, content?.detail);
  if (Array.isArray(content?.errors)) error.faults = content.errors;
  throw error;
}

/** An answer that breaks off is none; what is no JSON is undefined. */
async function contentIn(answer) {
  const text = await textOf(answer);
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
