// When to try again: a pure schedule, with chance passed in.
//
// The jitter is the whole delay, so that thousands of readers of one hub that was restarted come
// back spread out, not in step.

export const FIRST_SECONDS = 0.5;
export const LONGEST_SECONDS = 30;

/** Seconds before repetition `attempt` (0 is the first); `chance` is in [0, 1). */
export function delaySeconds(attempt, chance, retryAfter = 0) {
  const longest = Math.min(FIRST_SECONDS * 2 ** Math.min(attempt, 10), LONGEST_SECONDS);
  return retryAfter + longest * chance;
}

/** A wait that ends early when the signal is aborted. */
export function sleep(seconds, signal) {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, seconds * 1000);
    signal?.addEventListener("abort", end);
  });
}
