/** Changes as dots along lines. None flies while nobody looks, nothing is to move, or the person holds the picture. */

import { drawn, isStill } from "./dom.js";

const MOST = 60; // under way at once
const TOGETHER = 5; // of what came at once
const [STEPS, DURATION_MS, APART_MS] = [16, 1100, 90];

let isHeld = false;
let flying = 0;

/** So many changes go along each of these paths; as many dots as can be told from each other. */
export function fly(group, count, paths) {
  if (isStill() || isHeld) return;
  for (let at = 0; at < Math.min(count, TOGETHER); at += 1) for (const path of paths) if (flying < MOST) dot(group, at * APART_MS, path);
}

function dot(group, delay, path) {
  const made = drawn("circle", { r: 4 });
  group.append(made);
  flying += 1;
  path.stops ??= stopsOf(path);
  made.animate({ transform: path.stops, opacity: [0, 1, 1, 1, 0] }, { duration: DURATION_MS, delay, fill: "both", easing: "ease-in-out" })
    .finished.finally(() => {
      flying -= 1;
      made.remove();
    });
}

function stopsOf(path) {
  const length = path.getTotalLength();
  return Array.from({ length: STEPS + 1 }, (_, at) => path.getPointAtLength(length * at / STEPS))
    .map(({ x, y }) => `translate(${x}px, ${y}px)`);
}

/** A button that holds the picture, and lets it go on. */
export function holds(button, group) {
  button.onclick = () => {
    isHeld = !isHeld;
    button.ariaPressed = isHeld;
    button.textContent = isHeld ? "Let the picture go on" : "Hold the picture";
    for (const each of group.getAnimations({ subtree: true })) if (isHeld) each.pause(); else each.play();
  };
}
