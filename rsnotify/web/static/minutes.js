/** A day minute by minute, as the line of time of a set counts it. Nothing here knows the page.
 *
 * A minute is a number, counted from 1970, and named by its end: as a stretch of changes has what comes after its
 * `from`, up to its `until`.
 */

const MINUTE_MS = 60_000;
export const DAY = 1440;
const STEPS = [1, 2, 5, 10, 15, 30, 60]; // minutes that one bar may have
const BAR_PIXELS = 3;
const LOWEST = 0.08; // of a bar with anything in it
const HOUR = 60;

/** The minute in which a position lies. */
export const minuteOf = (position) => Date.parse(`${position.slice(0, 16)}Z`) / MINUTE_MS + (Number(position.slice(17, -1)) > 0);

export const momentOf = (minute) => `${new Date(minute * MINUTE_MS).toISOString().slice(0, 19)}Z`;

/** A minute as a field for a date and a time has it, by the clock of this place. */
export const writtenOf = (minute) => new Date(minute * MINUTE_MS).toLocaleString("sv").slice(0, 16).replace(" ", "T");

/** The minute of such a field; NaN of one that is not filled in. */
export const minuteIn = (written) => Math.floor(Date.parse(written) / MINUTE_MS);

/** What is wrong with a stretch that was written: `[edge, why]`, or undefined. */
export function faultOf([from, until], latest) {
  if (Number.isNaN(from)) return [0, "From: give a date and a time."];
  if (Number.isNaN(until)) return [1, "Until: give a date and a time."];
  if (from >= latest) return [0, "From is still to come."];
  if (until <= from) return [1, "Until is not after From."];
  if (until > latest) return [1, "Until is still to come."];
  return undefined;
}

/** Milliseconds from one position to another, to the microsecond. */
export const between = (one, other) =>
  ((Date.parse(other) - Date.parse(one)) * 1000 + Number(other.slice(-4, -1)) - Number(one.slice(-4, -1))) / 1000;

/** How many minutes a bar has, for a line of this width. */
export const stepFor = (pixels) => STEPS.find((step) => (DAY / step) * BAR_PIXELS <= pixels) ?? STEPS.at(-1);

/** The end of a line that has this minute, and whose bars begin with the hours. */
export const endFor = (minute, step) => Math.ceil(minute / step) * step;

/** The count of each bar of the day up to `end`, of counts by minute. */
export function barsOf(minutes, end, step) {
  const bars = new Array(DAY / step).fill(0);
  for (const [minute, count] of minutes) {
    const at = Math.ceil((minute - end + DAY) / step) - 1;
    if (at in bars) bars[at] += count;
  }
  return bars;
}

/** Their outline, one unit wide each, in a box of height 1. By square root, so that a few are seen beside many. */
export function pathOf(bars) {
  const most = Math.max(...bars);
  return bars.map((count, at) => (count ? `M${at},1v-${Math.max(LOWEST, Math.sqrt(count / most)).toFixed(3)}h.75V1z` : "")).join("");
}

/** The hours of this place at which a day up to `end` has a word, where there is room for it: `[minute, text]`. */
export function hoursOf(end, every) {
  const found = [];
  for (let minute = Math.ceil((end - DAY) / HOUR) * HOUR; minute <= end - every * HOUR / 2; minute += HOUR) {
    const time = new Date(minute * MINUTE_MS);
    if (time.getHours() % every) continue;
    found.push([minute, time.getHours() ? time.toTimeString().slice(0, 5) : time.toLocaleDateString("en-GB", { day: "numeric", month: "short" })]);
  }
  return found;
}

/** The stretch of whole bars between two places of a line. */
export function stretchOf(one, other, end, step) {
  const [first, last] = [Math.min(one, other), Math.max(one, other)].map((each) => (each - end) / step);
  const from = Math.min(Math.max(end + Math.floor(first) * step, end - DAY), end - step);
  return [from, Math.min(Math.max(end + Math.ceil(last) * step, from + step), end)];
}

/** A stretch, of which a key has moved the edge 0 or 1; undefined for any other key. */
export function moved(stretch, edge, key, end, step) {
  const by = { ArrowLeft: -step, ArrowDown: -step, ArrowRight: step, ArrowUp: step, PageDown: -HOUR, PageUp: HOUR, Home: -DAY, End: DAY }[key];
  if (!by) return undefined;
  const [low, high] = edge ? [stretch[0] + step, end] : [end - DAY, stretch[1] - step];
  const found = [...stretch];
  found[edge] = Math.max(low, Math.min(high, stretch[edge] + by));
  return found;
}
