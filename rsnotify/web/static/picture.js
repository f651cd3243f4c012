/** Each change is a dot; this page's own connection can be cut and joined again. */

import { channelOf, HOME, SAMPLE, send } from "./api.js";
import { counted, isStill, say, the } from "./dom.js";
import * as following from "./following.js";
import { set } from "./here.js";
import { token } from "./token.js";

const DOTS = 60; // under way at once, at most
const STEP_MS = 700;
const TRIED = ["created", "updated", "updated", "updated", "deleted"];
const PAUSE_MS = 350;
const [SOURCE, HUB, OWN, ...OTHERS] = [[70, 86], [180, 86], [290, 28], [290, 86], [290, 144]];

const { work, dots, cut, waiting } = the;
let isCut = false;
let isSure = false;
let missed = 0; // changes that are known to wait
let closing = null; // the gap after a cut: `{from, head, count, isBroken}`

export function arrived(count) {
  fly(count, [OWN, ...OTHERS]);
  if (!closing) return;
  closing.count += count;
  finish();
}

export function gap() {
  if (closing) closing.isBroken = true;
}

/** While the connection is cut, ask the hub what waits. */
export async function seen(newest) {
  if (!isCut || !(newest > following.cursor)) return;
  const { length } = await following.history({ from: following.cursor }).catch(() => []);
  if (!isCut || length <= missed) return;
  fly(length - missed, OTHERS);
  missed = length;
  waiting.textContent = `${missed}${missed === following.PAST ? "+" : ""} wait`;
}

cut.onclick = () => {
  isCut = !isCut;
  missed = 0;
  waiting.textContent = "";
  the.picture.classList.toggle("cut", isCut);
  cut.textContent = isCut ? "Connect again" : "Cut this page's connection";
  if (isCut) {
    following.cut();
    say(work, "Cut. Changes go on without this page, and wait for it in the hub.");
    return;
  }
  closing = { from: following.cursor, count: 0 };
  following.join();
  say(work, `Connecting again, from ${closing.from}…`);
};

export async function joined() {
  const mine = closing;
  if (!mine) return;
  const answer = await send("HEAD", channelOf(set.name)).catch(() => null);
  mine.head = answer?.headers.get("rsnotify-from") ?? following.cursor;
  if (mine === closing) finish();
}

function finish() {
  const { count, from, head, isBroken } = closing;
  if (!head || following.cursor < head) return;
  closing = null;
  if (isBroken) say(work, "The hub no longer keeps all that came meanwhile: see the Change Lists.", true);
  else if (count) say(work, `The gap is closed: ${counted(count, "change")} that came meanwhile arrived, in order, none missing and none twice: this page went on from ${from}.`);
  else say(work, "Connected again. Nothing had changed meanwhile.");
}

the.try.onclick = async ({ target }) => {
  isSure ||= confirm(`Publish five trial changes to ${set.name}, for all who follow it?`);
  if (!isSure) return;
  const loc = `${SAMPLE}?${Date.now()}`;
  const step = (text) => { if (!isCut) say(work, text); };
  target.disabled = true;
  try {
    const { publish } = await import("./client/rsnotify.js");
    for (const change of TRIED) {
      await publish(HOME.href, set.name, { loc, change }, { token: token(), giveUpSeconds: 10 });
      step(`${change}: stored.`);
      await new Promise((then) => { setTimeout(then, PAUSE_MS); });
    }
    step("Five changes were made of one resource; it is deleted again.");
  } catch ({ message }) {
    say(work, `Not made: ${message}`, true);
  } finally {
    target.disabled = false;
  }
};

function fly(count, ends) {
  if (isStill()) return;
  const free = Math.min(count, 5, DOTS - dots.children.length);
  for (let at = 0; at < free; at += 1) for (const end of ends) dot(at * 90, end);
}

function dot(delay, end) {
  const made = the.dot.cloneNode();
  made.removeAttribute("id");
  dots.append(made);
  const path = [SOURCE, HUB, end].map(([x, y]) => ({ transform: `translate(${x}px, ${y}px)` }));
  made.animate(path, { duration: STEP_MS, delay, fill: "both" }).finished.finally(() => made.remove());
}
