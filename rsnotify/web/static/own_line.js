/** The line over which this page follows a set. It can be cut and joined again, and one sees the gap close. */

import { channelOf, HOME, SAMPLE, send } from "./api.js";
import { isMeant } from "./asking.js";
import { counted, number, say } from "./dom.js";
import { fly } from "./dots.js";
import * as following from "./following.js";
import { token } from "./token.js";

const TRIED = ["created", "updated", "updated", "updated", "deleted"];
const PAUSE_MS = 350;

/** Its picture, with the ways of its dots; what is missing stands in `missing`, and in `work` what is done. */
export function ownLine(name, { picture, dots, own, others, cut, missing, work, five }) {
  let isCut = false;
  let isSure = false;
  let missed = 0; // changes that are known to wait
  let closing = null; // the gap after a cut: `{from, begun, came, head, count, isBroken}`
  stands();

  function stands() {
    cut.textContent = isCut ? "Connect again" : "Cut this page's connection";
    picture.classList.toggle("cut", isCut);
    missing.classList.remove("good");
  }

  function arrived(count) {
    fly(dots, count, [own(), ...others()]);
    if (!closing) return;
    closing.count += count;
    closing.came = performance.now();
    missing.textContent = `${Math.max(0, missed - closing.count)} missing`;
    finish();
  }

  function gap() {
    if (closing) closing.isBroken = true;
  }

  /** What the hub says of the set; while the connection is cut, it is asked what waits. */
  async function seen(newest) {
    if (!isCut || !(newest > following.cursor)) return;
    const { length } = await following.history({ from: following.cursor }).catch(() => []);
    if (!isCut || length <= missed) return;
    fly(dots, length - missed, others());
    missed = length;
    missing.textContent = `${missed}${missed === following.PAST ? "+" : ""} missing`;
  }

  cut.onclick = () => {
    isCut = !isCut;
    stands();
    if (isCut) {
      missed = 0;
      missing.textContent = "cut";
      following.cut();
      say(work, "Cut. Changes go on without this page, and wait for it in the hub.", false, true);
      return;
    }
    closing = { from: following.cursor, begun: performance.now(), count: 0 };
    following.join();
    say(work, `Connecting again, from ${closing.from}…`);
  };

  async function joined() {
    cut.disabled &&= following.cursor === null; // before, there is nothing to cut
    const mine = closing;
    if (!mine) return;
    const answer = await send("HEAD", channelOf(name)).catch(() => null);
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

  five.onclick = async () => {
    if (five.ariaDisabled) return; // not `disabled`, which would take the focus away
    isSure ||= await isMeant(`Publish five trial changes to ${name}?`, "All who follow it get them.", "Publish them");
    if (!isSure) return;
    const loc = `${SAMPLE}?${Date.now()}`;
    const step = (text) => { if (!isCut) say(work, text); };
    five.ariaDisabled = "true";
    try {
      const { publish } = await import("./client/rsnotify.js");
      for (const change of TRIED) {
        await publish(HOME.href, name, { loc, change }, { token: token(), giveUpSeconds: 10 });
        step(`${change}: stored.`);
        await new Promise((then) => { setTimeout(then, PAUSE_MS); });
      }
      step("Five changes were made of one resource; it is deleted again.");
    } catch ({ message }) {
      say(work, `Not made: ${message}`, true);
    } finally {
      five.ariaDisabled = null;
    }
  };

  /** Another set is followed now: what is still under way of this one says nothing any more. */
  function leave() {
    isCut = false;
    closing = null;
    stands();
    following.cut();
  }

  return { arrived, gap, seen, joined, leave };
}
