// The token that is shown: one that was given, or what a function answers, asked in time.
//
// A function is asked before the first request, before a JWT ends and once after a refusal, once for
// all who need a token; while the one in use counts nobody waits for the next. When a JWT ends is
// read, and nothing of it is verified: that is for who is shown it. The clock here may be wrong, so
// only a refusal proves that a token has ended. No error says one.

import { Rejected, TryAgain } from "./errors.js";

export const ANSWER_SECONDS = 30; // a function is waited for
export const EARLY_SECONDS = 30; // before a JWT ends, or a quarter of its time, if that is less
export const AGAIN_SECONDS = 1; // a function that failed, or gave nothing new, is not asked before
const LONGEST_SECONDS = 1_000_000; // a platform's timers know 2,147,483
const TOKEN = /^[!-~]([ -~]*[!-~])?$/;
const SHOWN = /(?<=[?&]access_token=)[^&#\s]+/g;

export class HeldToken {
  #function;
  #held; // {secret, due, ends}: when another one is to be asked for, and until when it counts
  #asking; // {result, until}: how long what came of it stands

  constructor(given) {
    if (typeof given === "function") this.#function = given;
    else this.#held = { secret: checked(given, "the token"), due: Infinity, ends: Infinity };
  }

  /** The token to show now. The function is waited for only if none is known to count. */
  async shown(signal) {
    if (this.#held && performance.now() < this.#held.due) return this.#held.secret;
    const asking = this.#asked();
    if (this.#held && performance.now() < this.#held.ends) {
      asking.catch(() => {}); // it is asked again
      return this.#held.secret;
    }
    return soon(asking, signal);
  }

  /** Whether there is another than this one, which was refused or soon ends; it is asked once. */
  async hasAnother(than, signal) {
    if (!this.#function || !this.#held) return false;
    return this.#held.secret !== than || (await soon(this.#asked(), signal)) !== than;
  }

  /** Does it once there is another token than this one; gives a function that ends the waiting. */
  whenAnother(than, act) {
    let timer;
    const look = async () => {
      const isDue = this.#secondsLeft(than) <= 0;
      const isThere = isDue && (await this.hasAnother(than).catch(() => false));
      if (timer === undefined) return;
      if (isThere) act();
      else timer = later();
    };
    const later = () => setTimeout(look, Math.min(this.#secondsLeft(than), LONGEST_SECONDS) * 1000);
    if (this.#function) timer = later();
    return () => {
      clearTimeout(timer);
      timer = undefined;
    };
  }

  #secondsLeft(of) {
    if (this.#held?.secret !== of) return 0;
    return Math.max(this.#held.due - performance.now(), 0) / 1000;
  }

  #asked() {
    if (!this.#asking || performance.now() >= this.#asking.until) {
      this.#asking = { until: Infinity };
      this.#asking.result = this.#ask(this.#asking);
    }
    return this.#asking.result;
  }

  async #ask(asking) {
    let isNew = false;
    try {
      const secret = checked(await answer(this.#function), "what the token function gave");
      isNew = this.#held?.secret !== secret;
      this.#held = held(secret, isNew);
      return secret;
    } catch (error) {
      if (this.#held) this.#held.due = performance.now() + AGAIN_SECONDS * 1000;
      throw error;
    } finally {
      asking.until = performance.now() + (isNew ? 0 : AGAIN_SECONDS * 1000);
    }
  }
}

async function answer(ask) {
  try {
    return await ask();
  } catch (error) {
    const said = String(error?.message ?? error).replaceAll(SHOWN, "…");
    throw new TryAgain(`the token function has failed: ${said}`);
  }
}

/** What comes of it, but not later than in half a minute, nor after the signal. */
async function soon(asking, signal) {
  let end;
  const late = new Promise((_, reject) => {
    const say = () => reject(new TryAgain(`the token function has not answered`));
    const timer = setTimeout(say, ANSWER_SECONDS * 1000);
    signal?.addEventListener("abort", say);
    if (signal?.aborted) say();
    end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", say);
    };
  });
  try {
    return await Promise.race([asking, late]);
  } finally {
    end();
  }
}

function held(secret, isNew) {
  const now = performance.now();
  const left = endOf(secret) * 1000 - Date.now();
  if (!(left > 0)) return { secret, due: Infinity, ends: Infinity };
  const due = left - Math.min(left / 4, EARLY_SECONDS * 1000);
  return { secret, due: now + (isNew ? due : Math.max(due, AGAIN_SECONDS * 1000)), ends: now + left };
}

function checked(given, what) {
  if (typeof given !== "string") {
    throw new Rejected(`${what} is of type ${typeof given}: a token is text`);
  }
  if (!given) throw new Rejected(`${what} is empty`);
  if (TOKEN.test(given)) return given;
  throw new Rejected(
    `${what} has a line break or another character that no token has: write it anew`,
  );
}

/** When a JWT ends, in seconds since 1970, as it says itself; NaN for any other token. */
export function endOf(token) {
  const parts = token.split(".");
  if (parts.length !== 3) return NaN;
  try {
    const { exp } = JSON.parse(atob(parts[1].replaceAll("-", "+").replaceAll("_", "/")));
    return typeof exp === "number" ? exp : NaN;
  } catch {
    return NaN;
  }
}
