// Tabs that share one connection; each reader is a tab, all of them in this process.

import assert from "node:assert/strict";
import { after, afterEach, beforeEach, describe, test } from "node:test";

import { MAILBOX_CHARS } from "../lib/shared.js";
import { follow } from "../rsnotify.js";
import * as servers from "./servers.mjs";

const { answered, at, capabilities, changed, document, index, link, notification, stream } =
  servers;
const CHANNEL = "/channels/set/change_notification_channel";
const canShare = Boolean(globalThis.navigator?.locks && globalThis.BroadcastChannel);

// In Deno 2.9 a channel that is opened while the last one is closed can post nothing: one stays open.
const open = canShare && new BroadcastChannel("open");
after(() => open && open.close());

let source, leaving;

beforeEach(async () => {
  source = await servers.serve({});
  leaving = new AbortController();
});

afterEach(() => {
  leaving.abort();
  return source.close();
});

function tab(options = {}) {
  const usual = { shared: true, transport: "sse", pollSeconds: 0.02, signal: leaving.signal };
  return follow(`${source.url}/c.xml`, { ...usual, ...options });
}

/** The last part of the address of so many changes. */
async function names(count, reading, next = reading.next()) {
  const found = [];
  for (; found.length < count; next = found.length < count && reading.next()) {
    found.push((await next).value.loc.split("/").at(-1));
  }
  return found;
}

const list = (md, ...changes) => document({ capability: "changelist", ...md }, ...changes);
const timesAsked = (wanted) => source.asked.filter(({ path }) => path === wanted).length;

async function until(isSo) {
  while (!isSo()) await new Promise(setImmediate);
}

function indexOf(...lists) {
  const entries = lists.map(([loc, from, end]) => [
    loc,
    `from="${from}"${end ? ` until="${end}"` : ""}`,
  ]);
  return index("changelist", ...entries);
}

/** A closed list, and an open one that is held back until the function that it gives is called. */
function offerLists() {
  const open = list({ from: at(2) }, link("index", "/index.xml"), changed(3), changed(4));
  let release;
  const held = new Promise((resolve) => (release = resolve));
  source.answers["/c.xml"] = capabilities(["/list.xml", "changelist"]);
  source.answers["/index.xml"] = indexOf(["/closed.xml", at(0), at(2)], ["/list.xml", at(2)]);
  source.answers["/closed.xml"] = list({ from: at(0), until: at(2) }, changed(1), changed(2));
  source.answers["/list.xml"] = async (about, response) => {
    if (timesAsked("/closed.xml")) await held;
    answered(200, open)(about, response);
  };
  return release;
}

/** So many changes in lists that are not sent again while they stay the same. */
function offerLongLists(lists, each) {
  const moment = (n) => new Date(Date.UTC(2026, 10, 20) + n * 1000).toISOString();
  const entry = (n) =>
    `<url><loc>http://a/${n}</loc><rs:md change="updated" datetime="${moment(n)}"/></url>`;
  const bounds = Array.from({ length: lists }, (_, n) => [n * each, (n + 1) * each]);
  const named = bounds.map(([from, end], n) => [`/${n}.xml`, moment(from), moment(end)]);
  source.answers["/c.xml"] = capabilities(["/index.xml", "changelist"]);
  source.answers["/index.xml"] = indexOf(...named);
  for (const [n, [from, end]] of bounds.entries()) {
    const entries = Array.from({ length: each }, (_, k) => entry(from + k + 1));
    const text = list({ from: moment(from), until: moment(end) }, ...entries);
    source.answers[`/${n}.xml`] = (about, response) =>
      (about.headers["if-none-match"] ? answered(304) : answered(200, text, { ETag: '"1"' }))(
        about,
        response,
      );
  }
  return moment(0);
}

describe("tabs that share a connection", { skip: !canShare && "there are no Web Locks" }, () => {
  test("each get all of the Change Lists, whenever they opened", async () => {
    const letGo = offerLists();
    const one = tab({ position: at(0) });
    assert.deepEqual(await names(2, one), ["1", "2"]);
    await until(() => timesAsked("/list.xml") === 2);
    const two = tab({ position: at(0) });
    const first = two.next();
    letGo();
    assert.deepEqual(await names(2, two, first), ["1", "2"]);
    assert.deepEqual(await names(2, one), ["3", "4"]);
    assert.deepEqual(await names(2, two), ["3", "4"]);
  });

  test("get nothing more, and nothing after a gap, once they are left", async () => {
    const letGo = offerLists();
    const one = tab({ position: at(0) });
    await names(2, one);
    await until(() => timesAsked("/list.xml") === 2);
    const ending = new AbortController();
    const next = tab({ position: at(0), signal: ending.signal }).next();
    source.answers["/c.xml"] = () => {};
    letGo();
    await until(() => timesAsked("/c.xml") === 2);
    ending.abort();
    assert.deepEqual(await next, { value: undefined, done: true });
  });

  test("get every change, however slowly they read", async () => {
    const each = Math.ceil((0.55 * MAILBOX_CHARS) / 200);
    const one = tab({ position: offerLongLists(2, each) });
    assert.deepEqual(await names(1, one), ["1"]);
    await until(() => timesAsked("/index.xml") === 2);
    for (let n = 2; n <= 2 * each; n++) {
      assert.equal((await one.next()).value.loc, `http://a/${n}`);
    }
  });

  test("go back with a Source that was set back, each of them, and say so", async (context) => {
    const warned = [];
    context.mock.method(console, "warn", (text) => warned.push(text));
    let setBack;
    const isSetBack = new Promise((resolve) => (setBack = resolve));
    const restored = stream(at(2), notification(2, 3, changed(3)), notification(3, 4, changed(4)));
    const before = stream(at(0), notification(0, 4, changed(4)), notification(4, 5, changed(5)));
    let now = (about, response) => {
      before(about, response);
      isSetBack.then(() => response.destroy());
    };
    source.answers["/c.xml"] = capabilities([CHANNEL, "change-notification"]);
    source.answers[CHANNEL] = (...words) => now(...words);
    const tabs = [tab({ position: at(0) }), tab({ position: at(0) })];
    for (const each of tabs) assert.deepEqual(await names(2, each), ["4", "5"]);
    const next = tabs.map((each) => each.next());
    now = restored;
    setBack();
    for (const [index, each] of tabs.entries())
      assert.deepEqual(await names(2, each, next[index]), ["3", "4"]);
    const problem = `the channel ends at ${at(2)} now, and at ${at(5)} before: the Source was set back`;
    assert.deepEqual(warned, [problem, problem]);
  });

  test("are told when a connection of their own waits, and when they need none any more", async () => {
    const missed = [notification(0, 1, changed(1)), notification(1, 2, changed(2))];
    const answers = [stream(at(2)), answered(503), stream(at(0), ...missed)];
    source.answers["/c.xml"] = capabilities([CHANNEL, "change-notification"]);
    source.answers[CHANNEL] = (...words) => answers.shift()(...words);
    const [leading, states] = [[], []];
    const first = tab({ onState: ({ state }) => leading.push(state) }).next();
    await until(() => leading.length);
    const two = tab({ position: at(0), onState: ({ state }) => states.push(state) });
    assert.deepEqual(await names(2, two), ["1", "2"]);
    const next = two.next();
    await until(() => states.includes("live"));
    assert.deepEqual([leading, states], [["live"], ["waiting", "live"]]);
    leaving.abort();
    assert.deepEqual([(await first).done, (await next).done], [true, true]);
  });

  test("ask nobody if their signal is aborted from the beginning", async () => {
    source.answers["/c.xml"] = capabilities([CHANNEL, "change-notification"]);
    source.answers[CHANNEL] = stream(at(0), notification(0, 1, changed(1)));
    const next = await tab({ signal: AbortSignal.abort() }).next();
    assert.deepEqual([next.done, source.asked.length], [true, 0]);
  });
});

test("tabs that cannot talk have a connection each", async (context) => {
  const talking = globalThis.BroadcastChannel;
  globalThis.BroadcastChannel = undefined;
  context.after(() => (globalThis.BroadcastChannel = talking));
  source.answers["/c.xml"] = capabilities([CHANNEL, "change-notification"]);
  source.answers[CHANNEL] = stream(at(0), notification(0, 1, changed(1)));
  for (const following of [tab(), tab()]) assert.deepEqual(await names(1, following), ["1"]);
  assert.equal(timesAsked(CHANNEL), 2);
});
