/** Each change is a dot; this page's own connection can be cut and joined again. */

import { channelOf, HOME, SAMPLE, send } from "./api.js";
import { isMeant } from "./asking.js";
import { counted, number, say, the } from "./dom.js";
import { fly, holds } from "./dots.js";
import * as following from "./following.js";
import { set } from "./here.js";
import { token } from "./token.js";

const TRIED = ["created", "updated", "updated", "updated", "deleted"];
const PAUSE_MS = 350;

const { work, dots, cut, missing } = the;
const [own, ...others] = the.picture.querySelectorAll(".way");
let isCut = false;
let isSure = false;
let missed = 0; // changes that are known to wait
let closing = null; // the gap after a cut: `{from, begun, came, head, count, isBroken}`
holds(the.still, dots);

export function arrived(count) {
  fly(dots, count, [own, ...others]);
  if (!closing) return;
  closing.count += count;
  closing.came = performance.now();
  missing.textContent = `${Math.max(0, missed - closing.count)} missing`;
  finish();
}

export function gap() {
  if (closing) closing.isBroken = true;
}

/** What the hub says of the set; while the connection is cut, it is asked what waits. */
export async function seen(newest, readers) {
  the.others.textContent = counted(Math.max(0, readers - (following.isLost ? 0 : 1)), "reader");
  if (!isCut || !(newest > following.cursor)) return;
  const { length } = await following.history({ from: following.cursor }).catch(() => []);
  if (!isCut || length <= missed) return;
  fly(dots, length - missed, others);
  missed = length;
  missing.textContent = `${missed}${missed === following.PAST ? "+" : ""} missing`;
}

cut.onclick = () => {
  isCut = !isCut;
  the.picture.classList.toggle("cut", isCut);
  missing.classList.remove("good");
  cut.textContent = isCut ? "Connect again" : "Cut this page's connection";
  if (isCut) {
    missed = 0;
    missing.textContent = "cut";
    following.cut();
    say(work, "Cut. Changes go on without this page, and wait for it in the hub.");
    return;
  }
  closing = { from: following.cursor, begun: performance.now(), count: 0 };
  following.join();
  say(work, `Connecting again, from ${closing.from}…`);
};

export async function joined() {
  cut.disabled &&= following.cursor === null; // before, there is nothing to cut
  const mine = closing;
  if (!mine) return;
  const answer = await send("HEAD", channelOf(set.name)).catch(() => null);
  mine.head = answer?.headers.get("rsnotify-from") ?? following.cursor;
  if (mine === closing) finish();
}

function finish() {
  const { begun, came, count, from, head, isBroken } = closing;
  if (!head || following.cursor < head) return;
  closing = null;
  const took = Math.max(1, Math.round(came - begun));
  missing.textContent = isBroken ? "" : count ? `${count} → 0 missing` : "0 missing";
  missing.classList.add("good");
  if (isBroken) say(work, "The hub no longer keeps all that came meanwhile: see the Change Lists.", true);
  else if (count) say(work, `${number(count)} missing → 0, in ${number(took)} ms: ${counted(count, "change")} that came meanwhile arrived, in order and none twice; this page went on from ${from}.`);
  else say(work, "Connected again. Nothing had changed meanwhile.");
}

the.try.onclick = async ({ target }) => {
  isSure ||= await isMeant(`Publish five trial changes to ${set.name}?`, "All who follow it get them.", "Publish them");
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
