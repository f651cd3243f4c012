/**
 * Rates of the last five minutes, second by second.
 */

import { byId } from "./dom.js";

const SECONDS = 300;
const HEIGHT = 100;

/** How many things happened in each of the last seconds. */
export class Rate {
  #counts = new Array(SECONDS).fill(0);
  #second = 0;

  add(number, now = seconds()) {
    this.#moveTo(now);
    this.#counts[now % SECONDS] += number;
  }

  /** From the oldest to the newest second; the one that has just begun is not among them. */
  values(now = seconds()) {
    this.#moveTo(now);
    return Array.from({ length: SECONDS - 1 }, (_, age) => this.#counts[(now + 1 + age) % SECONDS]);
  }

  clear() {
    this.#counts.fill(0);
  }

  #moveTo(now) {
    const first = Math.max(this.#second + 1, now - SECONDS + 1);
    for (let each = first; each <= now; each += 1) this.#counts[each % SECONDS] = 0;
    this.#second = Math.max(this.#second, now);
  }
}

const seconds = () => Math.floor(performance.now() / 1000);

export function draw(changes, deliveries) {
  const all = [changes, deliveries].map((rate) => rate.values());
  const highest = Math.max(...all.flat());
  const top = Math.max(1, highest);
  const [area, line] = all.map((values) => values.map(
    (value, second) => `${second + 1},${(HEIGHT * (1 - (0.95 * value) / top)).toFixed(1)}`));
  const svg = byId("plot");
  svg.querySelector(".changes").setAttribute("d", `M1,${HEIGHT} L${area.join(" ")} V${HEIGHT} Z`);
  svg.querySelector(".deliveries").setAttribute("d", `M${line.join(" ")}`);
  byId("scale").textContent = highest ? `highest: ${highest.toLocaleString("en")} a second` : "";
}

/** The mean of the last so many seconds. */
export function mean(rate, over = 5) {
  return rate.values().slice(-over).reduce((sum, each) => sum + each, 0) / over;
}
