/** Four lines of time: what the hub has said of itself since this page was opened. */

import { drawn, make, number, size, the } from "./dom.js";

const KEPT_MS = 15 * 60 * 1000;
const PAUSE_MS = 20 * 1000; // without an answer, a line is broken: the tab was hidden, or the hub away
const [WIDTH, HEIGHT] = [240, 40];

const few = (value) => number(Number(value.toPrecision(3)));
const LINES = [
  ["Changes a second", ({ rates }) => rates.changes_per_second, few],
  ["Notifications a second", ({ rates }) => rates.notifications_per_second, few],
  ["Readers", ({ readers }) => readers, number],
  ["Redis takes", ({ store }) => store.bytes, size],
].map(([name, valueOf, shown]) => ({ ...place(name), valueOf, shown, samples: [] }));

function place(name) {
  const [now, span, path] = [make.strong(), make.span({ className: "help" }), drawn("path")];
  const picture = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, path);
  const whole = make.div({ hidden: true }, make.dt({}, name), make.dd({}, now, picture, span));
  the.lines.append(whole);
  return { whole, now, span, path };
}

/** Go on with each line of which the status says something. */
export function goOn(status, now = Date.now()) {
  for (const line of LINES) {
    const value = line.valueOf(status);
    if (typeof value !== "number") continue;
    line.samples = [...line.samples, { value, at: now }].filter(({ at }) => now - at < KEPT_MS);
    draw(line);
  }
}

function draw({ whole, now, span, path, shown, samples }) {
  const [first, last] = [samples[0].at, samples.at(-1).at];
  const values = samples.map(({ value }) => value);
  const most = Math.max(...values);
  const [low, high] = [shown(Math.min(...values)), shown(most)];
  const x = (at) => ((at - first) / Math.max(1, last - first) * WIDTH).toFixed(1);
  const y = (value) => (HEIGHT - 1 - value / (most || 1) * (HEIGHT - 2)).toFixed(1);
  path.setAttribute("d", samples.map(({ value, at }, place_) =>
    `${place_ && at - samples[place_ - 1].at < PAUSE_MS ? "L" : "M"}${x(at)},${y(value)}`).join(""));
  whole.hidden = false;
  now.textContent = shown(values.at(-1));
  span.textContent = last - first < 1000 ? "since now"
    : `${low === high ? `${high} all the time` : `${low} to ${high}`}, ${since(last - first)}`;
}

const since = (ms) => (ms < 60_000 ? `in ${Math.round(ms / 1000)} s` : `in ${Math.floor(ms / 60_000)} min`);
