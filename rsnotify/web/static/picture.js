/**
 * See it work: the hub, and each change as a dot on its way. This page's own connection can be cut; what comes
 * meanwhile waits in the hub, and arrives when the connection is there again.
 */

import { channelOf, HOME, send } from "./api.js";
import { byId, counted, number, tell } from "./dom.js";
import { history, PAST } from "./following.js";
import { token } from "./token.js";

const DOTS = 60; // under way at once, at most
const STEP_MS = 700;
const TRIED = ["created", "updated", "updated", "updated", "deleted"];
const PAUSE_MS = 350; // between two of them
const [SOURCE, HUB, OWN, ...OTHERS] = [[70, 86], [180, 86], [290, 28], [290, 86], [290, 144]];

const [cut, work, dots, make] = ["cut", "work", "dots", "try"].map(byId);
let following = null;
let isCut = false;
let missed = 0; // changes that came while the connection was cut, as far as was asked
let closing = null; // what comes again after a cut: `{from, until, head, count, isWhole}`

export function show(chosen) {
  [following, closing] = [chosen, null];
  setCut(false);
}

/** Changes have arrived here. */
export function arrived(count, until) {
  fly(count, [OWN, ...OTHERS]);
  if (!closing) return;
  closing.count += count;
  closing.until = until;
  finish();
}

export function gap() {
  if (closing) closing.isWhole = false;
}

/** What the hub says of the set. While the connection is cut, it is asked what came after the page's position. */
export async function seen(newest, readers) {
  byId("others").textContent = readers > 1 ? `readers: ${number(readers - (isCut ? 0 : 1))}` : "readers";
  if (!isCut || !(newest > following.cursor)) return;
  const { changes } = await history(following.set, { from: following.cursor }).catch(() => ({ changes: [] }));
  if (!isCut || changes.length <= missed) return;
  fly(changes.length - missed, OTHERS);
  missed = changes.length;
  byId("waiting").textContent = `${missed}${missed === PAST ? "+" : ""} wait`;
}

function setCut(is) {
  [isCut, missed] = [is, 0];
  byId("waiting").textContent = "";
  byId("picture").classList.toggle("cut", is);
  cut.ariaPressed = is;
  cut.textContent = is ? "Connect again" : "Cut this page's connection";
}

export function watch() {
  cut.onclick = () => {
    setCut(!isCut);
    if (isCut) {
      following.cut();
      tell(work, "Cut. Changes go on without this page, and wait for it in the hub.");
      return;
    }
    closing = { from: following.cursor, until: following.cursor, count: 0, isWhole: true };
    following.join();
    tell(work, `Connecting again, from ${following.cursor}…`);
  };
  make.onclick = tryIt;
}

/** It is connected again: where does the channel stand now? */
export async function joined() {
  const mine = closing;
  if (!mine) return;
  const answer = await send("HEAD", channelOf(following.set)).catch(() => null);
  mine.head = answer?.headers.get("rsnotify-from") ?? mine.until;
  if (mine === closing) finish();
}

function finish() {
  if (!closing.head || closing.until < closing.head) return;
  const { count, from, isWhole } = closing;
  closing = null;
  if (!isWhole) tell(work, "The hub no longer keeps all that came meanwhile: see the Change Lists.", true);
  else if (count) tell(work, `The gap is closed: ${counted(count, "change")} that came meanwhile arrived, in order, none missing and none twice, because this page went on from ${from}.`);
  else tell(work, "Connected again. Nothing had changed meanwhile.");
}

/** Five changes of one resource, made with the JavaScript client; in the end it is gone again. */
async function tryIt() {
  const [loc, { set }] = [`http://example.com/try-it/${Date.now()}`, following];
  const say = (text) => { if (!isCut) tell(work, text); };
  make.disabled = true;
  try {
    const { publish } = await import("./client/rsnotify.js");
    for (const change of TRIED) {
      await publish(HOME.href, set, { loc, change }, { token: token(), giveUpSeconds: 10 });
      say(`${change}: stored.`);
      await new Promise((then) => { setTimeout(then, PAUSE_MS); });
    }
    say("Five changes were made, of one resource: it was created, updated, and deleted again.");
  } catch (error) {
    tell(work, `Not made: ${error.message}`, true);
  } finally {
    make.disabled = false;
  }
}

/** Some dots from the Sources to the hub, and on to who is connected. */
function fly(count, ends) {
  if (document.hidden || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  const free = Math.min(count, 5, DOTS - dots.children.length);
  for (let at = 0; at < free; at += 1) for (const end of ends) dot(at * 90, end);
}

function dot(delay, end) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", "circle");
  made.setAttribute("r", 4.5);
  dots.append(made);
  const path = [SOURCE, HUB, end].map(([x, y]) => ({ transform: `translate(${x}px, ${y}px)` }));
  made.animate(path, { duration: STEP_MS, delay, fill: "both" }).finished.finally(() => made.remove());
}
