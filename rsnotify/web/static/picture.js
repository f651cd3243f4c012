/**
 * See it work: the hub, and each change as a dot on its way. This page's own connection can be cut; what comes
 * meanwhile waits in the hub, and arrives when the connection is there again.
 */

import { channelOf, HOME, send } from "./api.js";
import { byId, number, tell } from "./dom.js";
import { history, PAST } from "./following.js";
import { token } from "./token.js";

const DOTS = 60; // under way at once, at most
const STEP_MS = 700;
const TRIED = ["created", "updated", "updated", "updated", "deleted"];
const PAUSE_MS = 350; // between two of them
const [SOURCE, HUB, OWN, ...OTHERS] = [[70, 86], [180, 86], [290, 28], [290, 86], [290, 144]];

let following = null;
let set = "";
let isCut = false;
let missed = 0; // changes that came while the connection was cut, as far as was asked
let closing = null; // what comes again after a cut: `{from, until, head, count, isWhole}`

export function show(name, chosen) {
  [set, following, closing] = [name, chosen, null];
  setCut(false);
}

/** Changes have arrived here. */
export function arrived(count, until) {
  fly(count, OWN);
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
  const { changes } = await history(set, { from: following.cursor }).catch(() => ({ changes: [] }));
  if (!isCut || changes.length <= missed) return;
  fly(changes.length - missed, null);
  missed = changes.length;
  byId("waiting").textContent = `${missed}${missed === PAST ? "+" : ""} wait`;
}

function setCut(is) {
  [isCut, missed] = [is, 0];
  byId("waiting").textContent = "";
  for (const id of ["own", "own-line"]) byId(id).classList.toggle("cut", is);
  const button = byId("cut");
  button.setAttribute("aria-pressed", String(is));
  button.textContent = is ? "Connect again" : "Cut this page's connection";
}

export function watch() {
  byId("cut").onclick = () => {
    if (!following) return;
    if (isCut) {
      closing = { from: following.cursor, until: following.cursor, count: 0, isWhole: true };
      setCut(false);
      following.join();
      tell(byId("work"), `Connecting again, from ${following.cursor}…`);
    } else {
      setCut(true);
      following.cut();
      tell(byId("work"), "Cut. Changes go on without this page, and wait for it in the hub.");
    }
  };
  byId("try").onclick = make;
}

/** It is connected again: where does the channel stand now? */
export async function joined() {
  const mine = closing;
  if (!mine) return;
  const answer = await send("HEAD", channelOf(set)).catch(() => null);
  mine.head = answer?.headers.get("rsnotify-from") ?? mine.until;
  if (mine === closing) finish();
}

function finish() {
  if (!closing?.head || closing.until < closing.head) return;
  const { count, from, isWhole } = closing;
  closing = null;
  if (!isWhole) tell(byId("work"), "The hub no longer keeps all that came meanwhile: see the Change Lists.", true);
  else if (count) tell(byId("work"), `The gap is closed: ${number(count)} change${count > 1 ? "s" : ""} that came meanwhile arrived, in order, none missing and none twice, because this page went on from ${from}.`);
  else tell(byId("work"), "Connected again. Nothing had changed meanwhile.");
}

/** Five changes of one resource, made with the JavaScript client; in the end it is gone again. */
async function make() {
  if (!token()) {
    tell(byId("work"), "Making changes needs a token: give it above.", true);
    byId("key").open = true;
    byId("secret").focus();
    return;
  }
  const [place, loc, chosen] = [byId("work"), `http://example.com/try-it/${Date.now()}`, set];
  byId("try").disabled = true;
  try {
    const { publish } = await import("./client/rsnotify.js");
    for (const change of TRIED) {
      await publish(HOME.href, chosen, { loc, change }, { token: token(), giveUpSeconds: 10 });
      if (!isCut) tell(place, `${change}: stored.`);
      await new Promise((then) => { setTimeout(then, PAUSE_MS); });
    }
    if (!isCut) tell(place, "Five changes were made, of one resource: it was created, updated, and deleted again.");
  } catch (error) {
    tell(place, `Not made: ${error.message}`, true);
  } finally {
    byId("try").disabled = false;
  }
}

/** Some dots from the Sources to the hub, and on to who is connected. */
function fly(count, own) {
  if (document.hidden || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  const free = Math.min(count, 5, DOTS - byId("dots").children.length);
  for (let at = 0; at < free; at += 1) {
    const ends = own ? [own, ...OTHERS] : OTHERS;
    for (const end of ends) dot(at * 90, end);
  }
}

function dot(delay, end) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", "circle");
  made.setAttribute("r", 4.5);
  byId("dots").append(made);
  const at = ([x, y]) => ({ transform: `translate(${x}px, ${y}px)` });
  made.animate([at(SOURCE), at(HUB), at(end)], { duration: STEP_MS, delay, fill: "both" })
    .finished.finally(() => made.remove());
}
