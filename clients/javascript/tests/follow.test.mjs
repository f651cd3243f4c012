// Following Sources of every kind, over HTTP, in this process.

import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import { inspect } from "node:util";
import { gzipSync } from "node:zlib";

import { DOCUMENT_BYTES, nextAfter, PAGES } from "../lib/changelists.js";
import { SETS_ASKED } from "../lib/discovery.js";
import { OPTION_SECONDS } from "../lib/follower.js";
import { follow, HistoryGone, notifications, Rejected } from "../rsnotify.js";
import * as servers from "./servers.mjs";

const {
  answered,
  at,
  brokenStream,
  capabilities,
  changed,
  document,
  index,
  link,
  notification,
  stream,
} = servers;
Math.random = () => 0.02; // no test needs long pauses between attempts

const CHANNEL = "/channels/set/change_notification_channel";
const quick = { transport: "sse", pollSeconds: 0.02 };

let source;

beforeEach(async () => {
  source = await servers.serve({});
});

afterEach(() => source.close());

/** So many changes: the last part of each address. */
async function read(path, count, options = {}) {
  const found = [];
  for await (const { loc } of follow(source.url + path, { ...quick, ...options })) {
    found.push(loc.split("/").at(-1));
    if (found.length === count) break;
  }
  return found;
}

/** A Source with a channel, and a Change List if `list` is given. */
function offer(channel, list) {
  const offers = [[CHANNEL, "change-notification"]];
  if (list) offers.push(["/list.xml", "changelist"]);
  source.answers["/c.xml"] = capabilities(...offers);
  source.answers["/list.xml"] = list;
  source.answers[CHANNEL] = channel;
}

/** The ws address of a channel of which nothing else is found. */
function alone(channel) {
  source.answers[CHANNEL] = (about, response) =>
    (about.headers.accept === "text/event-stream" ? channel : answered(200))(about, response);
  return source.url.replace("http", "ws") + CHANNEL;
}

/** Every interval that runs, for as long as the test does. */
function keptBy(context) {
  const [kept, { setInterval, clearInterval }] = [new Set(), globalThis];
  globalThis.setInterval = (...words) => {
    const timer = setInterval(...words);
    kept.add(timer);
    return timer;
  };
  globalThis.clearInterval = (timer) => {
    clearInterval(timer);
    kept.delete(timer);
  };
  context.after(() => {
    kept.forEach(clearInterval);
    Object.assign(globalThis, { setInterval, clearInterval });
  });
  return kept;
}

/** What is said on the console, for as long as the test does. */
function warningsOf(context) {
  const warned = [];
  context.mock.method(console, "warn", (text) => warned.push(text));
  return warned;
}

const list = (md, ...changes) => document({ capability: "changelist", ...md }, ...changes);
const inTurn =
  (...answers) =>
  (about, response) =>
    (answers.length > 1 ? answers.shift() : answers[0])(about, response);

describe("a Source", () => {
  test("is found by a header, a page, the well-known address and robots.txt", async () => {
    offer(stream(at(0), notification(0, 1, changed(1))));
    source.answers["/head"] = answered(200, "x", { Link: '</c.xml>; rel="resourcesync"' });
    source.answers["/page"] = answered(200, '<link rel="resourcesync" href="/c.xml">', {
      "Content-Type": "text/html",
    });
    for (const path of ["/head", "/page", "/c.xml"]) assert.deepEqual(await read(path, 1), ["1"]);
    source.answers["/robots.txt"] = answered(200, "Sitemap: /c.xml", {
      "Content-Type": "text/plain",
    });
    assert.deepEqual(await read("/nowhere", 1), ["1"]);
    const entry = "<url><loc>/c.xml</loc></url>";
    source.answers["/.well-known/resourcesync"] = document({ capability: "description" }, entry);
    delete source.answers["/robots.txt"];
    assert.deepEqual(await read("/", 1), ["1"]);
  });

  test("is found past a front that has no page", async () => {
    offer(stream(at(0), notification(0, 1, changed(1))));
    source.answers["/"] = answered(401, '{"detail": "the JWT has expired"}');
    await assert.rejects(read("/", 1, { token: "t" }), /the JWT has expired/);
    source.answers["/"] = answered(403);
    await assert.rejects(read("/", 1), (error) => error.status === 403);
    source.answers["/robots.txt"] = answered(200, "Sitemap: /c.xml");
    assert.deepEqual(await read("/", 1), ["1"]);
  });

  test("is found past a page that is gone", async () => {
    offer(stream(at(0), notification(0, 1, changed(1))));
    source.answers["/robots.txt"] = answered(200, "Sitemap: /c.xml");
    const json = { "Content-Type": "application/json" };
    source.answers["/gone"] = answered(404, '{"detail": "Not Found"}', json);
    for (const path of ["/nowhere", "/gone"]) assert.deepEqual(await read(path, 1), ["1"]);
  });

  test("is not another one where a document or a set of a hub is not there", async () => {
    offer(stream(at(0), notification(0, 1, changed(1))));
    source.answers["/robots.txt"] = answered(200, "Sitemap: /c.xml");
    for (const path of ["/b.xml", "/b.xml.gz"])
      await assert.rejects(read(path, 1), /b\.xml.*there is nothing at this address/);
    const problem = { "Content-Type": "application/problem+json" };
    for (const path of ["/a", "/b", "/b.xml"])
      source.answers[path] = answered(404, '{"detail": "no such set"}', problem);
    for (const path of ["/b", "/b.xml"])
      await assert.rejects(read(path, 1), new RegExp(`${path}: no such set$`));
  });

  test("is not another one where something else comes instead of a document", async () => {
    offer(stream(at(0), notification(0, 1, changed(1))));
    source.answers["/robots.txt"] = answered(200, "Sitemap: /c.xml");
    source.answers["/login"] = answered(200, "<html>log in</html>", { "Content-Type": "text/html" });
    source.answers["/moved.xml"] = answered(302, "", { Location: "/login" });
    for (const path of ["/A.XML", "/a.xml.gz/"]) source.answers[path] = source.answers["/login"];
    for (const path of ["/A.XML", "/a.xml.gz/", "/moved.xml"])
      await assert.rejects(read(path, 1), new RegExp(`${path} is no ResourceSync document`));
    await assert.rejects(read("/B.XML", 1), /there is nothing at this address/);
    source.answers["/moved.xml"] = answered(200, "<a/>", { Link: '</c.xml>; rel="resourcesync"' });
    assert.deepEqual(await read("/moved.xml", 1), ["1"]);
  });

  test("whose Capability List cannot be read is refused with what is wrong in it", async () => {
    const broken = capabilities([CHANNEL, "change-notification"]).replace("</urlset>", "</url");
    source.answers["/c.xml"] = broken;
    const why = "no ResourceSync document: not well-formed XML: it breaks off; look whether it is";
    await assert.rejects(read("/c.xml", 1), new RegExp(`/c\\.xml is ${why} right$`));
  });

  test("that was taken instead of what is not there, or beside others, is named", async (context) => {
    const warn = warningsOf(context);
    offer(stream(at(0), notification(0, 1, changed(1))));
    source.answers["/robots.txt"] = answered(200, "Sitemap: /c.xml\nSitemap: /c.xml");
    assert.deepEqual(await read("/", 1), ["1"]);
    assert.deepEqual(warn, []);
    source.answers["/robots.txt"] = answered(200, "Sitemap: /c.xml\nSitemap: /d.xml");
    assert.deepEqual(await read("/nowhere", 1), ["1"]);
    const taken = `${source.url}/c.xml`;
    assert.deepEqual(warn, [
      `robots.txt names 1 more sitemaps: taking ${taken} alone`,
      `${source.url}/nowhere answers 404; taking ${taken}, to which its site leads`,
    ]);
  });

  /** The index of these Source Descriptions. */
  const described = (...paths) =>
    index("description", ...paths.map((path) => [path, 'capability="description"']));

  test("is looked for in so many sets of its topic's hub, and more are named", async (context) => {
    const warn = warningsOf(context);
    offer(stream(at(0), notification(0, 1, changed(1))));
    const links = '</channels/set/change_notification_channel>; rel="self", </hub>; rel="hub"';
    source.answers["/news"] = answered(200, "x", { Link: links });
    const sets = (count) => document({ capability: "description" }, entry.repeat(count));
    const entry = "<url><loc>/c.xml</loc></url>";
    source.answers["/.well-known/resourcesync"] = sets(SETS_ASKED);
    assert.deepEqual(await read("/news", 1), ["1"]);
    assert.deepEqual(warn, []);
    source.answers["/.well-known/resourcesync"] = sets(SETS_ASKED + 1);
    assert.deepEqual(await read("/news", 1), ["1"]);
    const words = `${source.url}/hub has more than 100 sets: only so many are asked`;
    assert.deepEqual(warn, [words]);
    source.answers["/.well-known/resourcesync"] = described("/d.xml", "/none.xml");
    source.answers["/d.xml"] = sets(1);
    assert.deepEqual(await read("/news", 1), ["1"]);
    assert.deepEqual(warn, [words]);
    source.answers["/d.xml"] = sets(SETS_ASKED + 1);
    assert.deepEqual(await read("/news", 1), ["1"]);
    assert.deepEqual(warn, [words, words]);
    source.answers["/d.xml"] = sets(1);
    const many = (count) => described("/d.xml", ...Array(count - 1).fill("/none.xml"));
    source.answers["/.well-known/resourcesync"] = many(SETS_ASKED);
    assert.deepEqual(await read("/news", 1), ["1"]);
    assert.deepEqual(warn, [words, words]);
    source.answers["/.well-known/resourcesync"] = many(SETS_ASKED + 1);
    assert.deepEqual(await read("/news", 1), ["1"]);
    assert.deepEqual(warn, [words, words, words]);
  });

  test("is not found by the index of several Source Descriptions, which says so", async () => {
    source.answers["/.well-known/resourcesync"] = described("/d.xml", "/e.xml");
    await assert.rejects(read("/", 1), /names its sets of resources in 2 Source Descriptions: give/);
    source.answers["/.well-known/resourcesync"] = described("/d.xml");
    source.answers["/d.xml"] = document(
      { capability: "description" },
      "<url><loc>/c.xml</loc></url>",
    );
    offer(stream(at(0), notification(0, 1, changed(1))));
    assert.deepEqual(await read("/", 1), ["1"]);
  });

  test("is one of so many sets that their names are not read to the end", async () => {
    const entry = `<url><loc>/${"x".repeat(150)}.xml</loc></url>`;
    source.answers["/"] = document({ capability: "description" }, entry.repeat(12_000));
    await assert.rejects(read("/", 1), /offers more than 1000 sets of resources: give the address/);
  });

  test("is found where a hub has its list, whatever it tells of its sets", async () => {
    offer(stream(at(0), notification(0, 1, changed(1))));
    const problem = { "Content-Type": "application/problem+json" };
    source.answers["/a"] = answered(404, '{"detail": "there is nothing"}', problem);
    source.answers["/a/"] = source.answers["/a"];
    source.answers["/a/capabilitylist.xml"] = source.answers["/c.xml"];
    source.answers["/old"] = answered(301, "", { Location: "/a?x=y" });
    for (const path of ["/a", "/a/", "/old"]) assert.deepEqual(await read(path, 1), ["1"]);
    source.answers["/a/capabilitylist.xml"] = answered(401);
    await assert.rejects(read("/a", 1), /a token is needed/);
  });

  test("that is none says so", async () => {
    await assert.rejects(read("/nothing", 1), /look whether it is right/);
    source.answers["/one"] = answered(200, "x", { Link: '</two>; rel="resourcesync"' });
    source.answers["/two"] = answered(200, "x", { Link: '</one>; rel="resourcesync"' });
    await assert.rejects(read("/one", 1), /in a circle/);
    source.answers["/list"] = document({ capability: "resourcelist" });
    await assert.rejects(read("/list", 1), /neither a channel nor a Change List/);
    source.answers["/private"] = answered(401);
    await assert.rejects(
      read("/private", 1),
      (error) => error instanceof Rejected && error.status === 401,
    );
    source.answers["/private"] = answered(401, '{"detail": "the JWT has expired"}');
    await assert.rejects(read("/private", 1, { token: "t" }), /the JWT has expired/);
    await assert.rejects(read("/private", 1), /a token is needed/);
  });

  test("that leads to no address that can be fetched says so", async () => {
    for (const loc of ["javascript:1", "http://[", "ftp://a/", "ws://["]) {
      source.answers["/c.xml"] = capabilities([loc, "change-notification"]);
      await assert.rejects(read("/c.xml", 1), Rejected);
      source.answers["/c.xml"] = capabilities([loc, "changelist"]);
      await assert.rejects(read("/c.xml", 1), Rejected);
    }
  });

  for (const [url, options] of [
    ["example.org"],
    ["ftp://a/"],
    ["http://user:secret@a/"],
    ["http://a/", { position: "now" }],
    ["http://a/", { from: "2026-11-20T21:34:00Z" }],
    ["http://a/", { postion: "2026-11-20T21:34:00Z" }],
    ["http://a/", { token: "rsn_\n1" }],
    ["http://a/", { token: "rsn_\u2603" }],
    ["http://a/", { transport: "websocket", WebSocket: null }],
    ["http://a/", { transport: "pigeon" }],
    ["http://a/", { pollSeconds: 0 }],
    ["http://a/", { pollSeconds: "often" }],
    ["http://a/", { pollSeconds: OPTION_SECONDS + 1 }],
    ["http://a/", { quietSeconds: Infinity }],
    ["ws://a/channels/change_notification_channel?set=a&set=b"],
  ]) {
    test(`cannot be asked for with ${url} and ${inspect(options)}`, async () => {
      const signal = AbortSignal.timeout(2000); // what is not refused at once is tried for ever
      const isClear = (error) => error instanceof Rejected && !/secret|rsn_/.test(error.message);
      await assert.rejects(follow(url, { signal, ...options }).next(), isClear);
    });
  }

  test("names the options that there are, where one is unknown", async () => {
    const signal = AbortSignal.timeout(2000);
    const unknown = follow("http://a/", { signal, postion: "2026-11-20T21:34:00Z" }).next();
    await assert.rejects(unknown, /there is no option postion: there are position, state, /);
  });
});

describe("a channel", () => {
  test("is resumed from the cursor when the connection breaks", async () => {
    const begun = brokenStream(at(0), notification(0, 2, changed(1), changed(2)));
    offer(inTurn(begun, stream(at(2), notification(2, 3, changed(3)))));
    assert.deepEqual(await read("/c.xml", 3), ["1", "2", "3"]);
    const asked = source.asked.filter(({ path }) => path === CHANNEL);
    assert.deepEqual(
      asked.map(({ from }) => from),
      [null, at(2)],
    );
  });

  test("is resumed from where it said that it begins, if it breaks before anything came", async () => {
    offer(inTurn(brokenStream(at(4)), stream(at(4), notification(4, 5, changed(5)))));
    assert.deepEqual(await read("/c.xml", 1, { position: null }), ["5"]);
    assert.equal(source.asked.at(-1).from, at(4));
  });

  test("of a Source that was set back is followed from there, and that is said", async (context) => {
    const warned = warningsOf(context);
    const before = brokenStream(at(0), notification(0, 5, changed(4), changed(5)));
    const restored = stream(at(2), notification(2, 3, changed(3)), notification(3, 4, changed(4)));
    offer(inTurn(before, restored));
    const found = [];
    for await (const { loc, position } of follow(`${source.url}/c.xml`, quick)) {
      found.push([loc.split("/").at(-1), position]);
      if (found.length === 4) break;
    }
    const [four, five] = [["4", at(4)], ["5", at(5)]];
    assert.deepEqual(found, [four, five, ["3", at(3)], four]);
    assert.deepEqual(warned, [
      `the channel ends at ${at(2)} now, and at ${at(5)} before: the Source was set back`,
    ]);
  });

  test("that goes on before what it has sent was set back, and one that repeats itself was not", async (context) => {
    const warned = warningsOf(context);
    const again = notification(0, 1, changed(1));
    const sent = [again, notification(1, 5, changed(5)), again, notification(1, 3, changed(3))];
    offer(stream(at(0), ...sent));
    assert.deepEqual(await read("/c.xml", 3), ["1", "5", "3"]);
    assert.deepEqual(warned, [
      `a notification up to ${at(3)} came after one up to ${at(5)}: the Source was set back`,
    ]);
  });

  test("is asked again when it cannot serve now, as late as it says", async () => {
    const busy = answered(503, "", { "Retry-After": "0" });
    offer(inTurn(busy, answered(429), stream(at(0), notification(0, 1, changed(1)))));
    const states = [];
    await read("/c.xml", 1, { onState: ({ state }) => states.push(state) });
    assert.deepEqual(states, ["waiting", "waiting", "live"]);
  });

  test("that is refused ends it with its own words", async () => {
    offer(answered(403, '{"detail": "the token is for another set"}'));
    await assert.rejects(read("/c.xml", 1), /the token is for another set/);
    offer(answered(200, "hello"));
    await assert.rejects(read("/c.xml", 1), /is no channel/);
  });

  test("that was read and is not there for a while is waited for", async () => {
    const page = answered(200, "<html>Back soon", { "Content-Type": "text/html" });
    const begun = brokenStream(at(0), notification(0, 1, changed(1)));
    const again = stream(at(1), notification(1, 2, changed(2)));
    const none = answered(404);
    offer(inTurn(begun, page, page, none, none, again)); // each time a hub of the topic is looked for
    const said = [];
    const onState = ({ state, error }) => state === "waiting" && said.push(error.message);
    assert.deepEqual(await read("/c.xml", 2, { onState }), ["1", "2"]);
    const missing = said.slice(1); // after the end of the first
    assert.match(missing[0], /is no channel: it sent a page in HTML.*, but the Source was read before/);
    assert.match(missing[1], /nothing at this address.*, but the Source was read before/);
    offer(page);
    await assert.rejects(read("/c.xml", 1), /is no channel: it sent a page in HTML/);
  });

  test("of a notification that cannot be read is asked for it again", async () => {
    const broken = stream(at(0), notification(0, 1, changed(1)), "<urlset");
    offer(inTurn(broken, stream(at(1), notification(1, 2, changed(2)))));
    assert.deepEqual(await read("/c.xml", 2), ["1", "2"]);
    assert.equal(source.asked.at(-1).from, at(1));
  });

  test("ends when its signal is aborted, at once, while it waits for anything", async () => {
    for (const waiting of [stream(at(0)), () => {}, answered(503)]) {
      offer(waiting);
      const ending = new AbortController();
      const reading = read("/c.xml", 1, { signal: ending.signal });
      while (!source.asked.some(({ path }) => path === CHANNEL)) await new Promise(setImmediate);
      ending.abort();
      assert.deepEqual(await reading, []);
      source.asked.length = 0;
    }
  });

  test("that does not say where it begins is joined by its Change List", async () => {
    const silent = stream(undefined, notification(3, 4, changed(4)));
    offer(silent, list({ from: at(0) }, changed(2), changed(3)));
    assert.deepEqual(await read("/c.xml", 3, { position: at(1) }), ["2", "3", "4"]);
    assert.deepEqual(await read("/c.xml", 1), ["4"]);
  });

  test("that does not say where it begins, with a list that cannot be read, is a gap", async () => {
    offer(stream(undefined, notification(3, 4, changed(4))), answered(404));
    const gaps = [];
    const onGap = ({ from, until }) => gaps.push([from, until]);
    assert.deepEqual(await read("/c.xml", 1, { position: at(1), onGap }), ["4"]);
    assert.deepEqual(gaps, [[at(1), undefined]]);
    await assert.rejects(read("/c.xml", 1, { position: at(1) }), HistoryGone);
    assert.deepEqual(await read("/c.xml", 1), ["4"]);
  });

  test("by event stream opens no WebSocket, though the option gives one", async () => {
    const url = alone(stream(at(0), notification(0, 1, changed(1))));
    const made = [];
    const WebSocket = class {
      constructor(url) {
        made.push(url);
        setTimeout(() => this.onclose({ code: 1006 }));
      }
      close() {}
    };
    assert.equal((await follow(url, { ...quick, WebSocket }).next()).value.loc, "http://a/1");
    assert.deepEqual(made, []);
  });

  test("by a WebSocket may send its notifications as bytes", async () => {
    const bytes = new TextEncoder().encode(notification(0, 1, changed(1, "http://a/é")));
    const WebSocket = class {
      constructor() {
        setTimeout(() => this.onopen());
        const data = () => (this.binaryType === "arraybuffer" ? bytes.buffer : new Blob([bytes]));
        setTimeout(() => this.onmessage({ data: data() }), 5);
      }
      close() {}
    };
    const reading = follow(alone(stream(at(0))), { WebSocket });
    assert.equal((await reading.next()).value.loc, "http://a/é");
    await reading.return();
  });

  test("left while its WebSocket is being opened is not told of as live", async () => {
    const url = alone(stream(at(0)));
    const [ending, states] = [new AbortController(), []];
    const WebSocket = class {
      constructor() {
        setTimeout(() => ending.abort());
      }
      close() {}
    };
    const onState = ({ state }) => states.push(state);
    const reading = follow(url, { WebSocket, signal: ending.signal, onState });
    assert.equal((await reading.next()).done, true);
    assert.deepEqual(states, []);
  });

  test("by a WebSocket that is dead is left, though its address says where to begin", async () => {
    const [made, ending] = [[], new AbortController()];
    const begins = ({ from }) => from ?? at(made.length ? 5 : 0);
    const url = alone((about, response) => stream(begins(about))(about, response));
    const WebSocket = class {
      constructor(address) {
        made.push(address);
        if (made.length === 2) ending.abort();
        setTimeout(() => this.onopen());
      }
      close() {}
    };
    const late = setTimeout(() => ending.abort(), 2000);
    const options = { WebSocket, quietSeconds: 0.02, signal: ending.signal };
    for await (const change of follow(`${url}?from=${at(0)}`, options)) assert.fail(change.loc);
    clearTimeout(late);
    assert.equal(made.length, 2);
  });

  for (const [what, sent, count] of [
    ["none of it keeps", [notification(1, 5)], 1],
    ["nothing at all keeps", [], 1],
    ["some of it ends", [notification(1, 5, changed(4))], 2],
  ]) {
    test(`by a WebSocket that is silent about a part, of which the hub sends ${what} it`, async () => {
      const [made, ending] = [[], new AbortController()];
      let looked = 0;
      const url = alone((about, response) => {
        const isLooking = made.length === 1 && about.from && ++looked;
        stream(about.from ?? at(5), ...(isLooking ? sent : []))(about, response);
        if (count === 1 && looked === 2) ending.abort();
      });
      const WebSocket = class {
        constructor(address) {
          made.push(address);
          if (made.length === 2) ending.abort();
          setTimeout(() => this.onopen());
        }
        close() {}
      };
      const options = { WebSocket, quietSeconds: 0.02, prefix: "http://a/", position: at(1) };
      const states = [];
      const onState = ({ state }) => states.push(state);
      if (!sent.length) setTimeout(() => ending.abort(), 200); // it is waited for
      const found = follow(url, { ...options, signal: ending.signal, onState });
      for await (const change of found) assert.fail(change.loc);
      assert.equal(made.length, count);
      assert.equal(states.includes("waiting"), count > 1);
    });
  }

  for (const [what, answer] of [
    ["that is not there", answered(404)],
    ["that cannot be read for a while", answered(503)],
    ["that begins after its cursor, and lists nothing new", answered(200, list({ from: at(5) }))],
  ]) {
    test(`by a WebSocket that is silent keeps it, beside a Change List ${what}`, async () => {
      const socket = `${source.url.replace("http", "ws")}${CHANNEL}`;
      source.answers["/c.xml"] = capabilities(
        [socket, "change-notification"],
        ["/list.xml", "changelist"],
      );
      const [made, ending] = [[], new AbortController()];
      const found = [];
      let asked = 0;
      source.answers["/list.xml"] = (about, response) => {
        if (found.length && ++asked === 6) ending.abort();
        if (found.length) answer(about, response);
        else response.end(list({ from: at(0) }));
      };
      const WebSocket = class {
        constructor(url) {
          made.push(url);
          setTimeout(() => this.onopen());
          setTimeout(() => this.onmessage({ data: notification(0, 1, changed(1)) }), 5);
        }
        close() {}
      };
      const options = { WebSocket, quietSeconds: 0.02, signal: ending.signal };
      for await (const { loc } of follow(`${source.url}/c.xml`, options)) found.push(loc);
      assert.deepEqual(found, ["http://a/1"]);
      assert.equal(made.length, 1);
    });
  }

  for (const [what, dies] of [
    ["never says that it is closed", false],
    ["dies as soon as it is open", true],
  ]) {
    test(`by a WebSocket that ${what} leaves no timer and no listener behind`, async (context) => {
      const url = alone(stream(at(0)));
      const [ending, kept] = [new AbortController(), keptBy(context)];
      const WebSocket = class {
        constructor() {
          setTimeout(() => {
            this.onopen();
            if (dies) this.onclose({ code: 1006 });
            else this.onmessage({ data: notification(0, 1, changed(1)) });
          });
        }
        close() {}
      };
      ending.signal.addEventListener = (_, listener) => kept.add(listener);
      ending.signal.removeEventListener = (_, listener) => kept.delete(listener);
      const onState = ({ state }) => dies && state === "waiting" && ending.abort();
      for await (const _ of follow(url, { WebSocket, signal: ending.signal, onState })) break;
      assert.deepEqual([...kept], []);
    });
  }

  test("gives whole notifications to whoever asks for them", async () => {
    const payload = notification(0, 1, changed(1));
    offer(stream(at(0), payload));
    const { value } = await notifications(`${source.url}/c.xml`, quick).next();
    assert.deepEqual([value.payload, value.from, value.until], [payload, at(0), at(1)]);
  });
});

describe("a gap", () => {
  test("between notifications is asked for again, then read from the Change List", async () => {
    const gapped = stream(at(1), notification(3, 4, changed(4)));
    const later = stream(at(4), notification(4, 5, changed(5)));
    offer(inTurn(gapped, gapped, later), list({ from: at(0) }, changed(2), changed(3), changed(4)));
    assert.deepEqual(await read("/c.xml", 4, { position: at(1) }), ["2", "3", "4", "5"]);
  });

  test("before a channel begins is none: else it would have refused the cursor", async () => {
    offer(stream(at(3), notification(3, 4, changed(4))), list({ from: at(0) }, changed(2)));
    assert.deepEqual(await read("/c.xml", 1, { position: at(1) }), ["4"]);
  });

  test("of a channel that no longer has it is read from the index, closed lists and the archive", async () => {
    offer(
      inTurn(answered(410, "{}"), stream(at(9))),
      list({ from: at(6) }, link("index", "/index.xml"), changed(7)),
    );
    source.answers["/c.xml"] = capabilities(
      [CHANNEL, "change-notification"],
      ["/list.xml", "changelist"],
      ["/archive.xml", "changelist-archive"],
    );
    source.answers["/index.xml"] = index(
      "changelist",
      ["/closed.xml", `from="${at(4)}" until="${at(6)}"`],
      ["/list.xml", `from="${at(6)}"`],
    );
    source.answers["/archive.xml"] = document(
      { capability: "changelist-archive" },
      `<url><loc>/old.xml</loc><rs:md from="${at(0)}" until="${at(2)}"/></url>`,
      `<url><loc>/older.xml</loc><rs:md from="${at(2)}" until="${at(4)}"/></url>`,
    );
    source.answers["/older.xml"] = list({ from: at(2), until: at(4) }, changed(4));
    source.answers["/closed.xml"] = list({ from: at(4), until: at(6) }, changed(5));
    assert.deepEqual(await read("/c.xml", 3, { position: at(3) }), ["4", "5", "7"]);
    assert.ok(!source.asked.some(({ path }) => path === "/old.xml"));
  });

  test("repeats what happened at the cursor itself, where another change may have happened too", async () => {
    offer(
      inTurn(answered(410, "{}"), stream(at(9))),
      list({ from: at(0) }, changed(1, "a"), changed(1, "b"), changed(2, "c")),
    );
    assert.deepEqual(await read("/c.xml", 3, { position: at(1) }), ["a", "b", "c"]);
  });

  const next = (page) => link("next", `/list${page}.xml`);
  const tooOld = () => inTurn(answered(410, "{}"), stream(at(9)));

  test("may have any moment of its second where a list says whole seconds", async () => {
    const when = (second) => at(second).replace(".000000", "");
    const entry = (second) => changed(second).replace(at(second), when(second));
    source.answers["/list.xml"] = list({ from: when(1) }, ...[1, 2, 3].map(entry));
    const position = at(2).replace("000000Z", "300000Z");
    assert.deepEqual(await read("/list.xml", 2, { position }), ["2", "3"]);
    source.answers["/list.xml"] = list({ from: when(1) }, changed(1), changed(2), entry(3));
    assert.deepEqual(await read("/list.xml", 1, { position }), ["3"]);
  });

  test("is read from all pages of a list that each say the same of the whole", async () => {
    const whole = { from: at(0), until: at(8) };
    offer(tooOld(), list(whole, next(2), changed(1), changed(2)));
    source.answers["/list2.xml"] = list(whole, next(3), changed(3));
    source.answers["/list3.xml"] = list(whole, changed(4));
    assert.deepEqual(await read("/c.xml", 4, { position: at(0) }), ["1", "2", "3", "4"]);
  });

  test("is read from a next page in whatever letters the relation is written", async () => {
    const whole = { from: at(0), until: at(8) };
    offer(tooOld(), list(whole, link("Next", "/list2.xml"), changed(1)));
    source.answers["/list2.xml"] = list(whole, changed(2));
    assert.deepEqual(await read("/c.xml", 2, { position: at(0) }), ["1", "2"]);
  });

  test("is read from all pages of a list that say where they end themselves", async () => {
    offer(tooOld(), list({ from: at(0), until: at(2) }, next(2), changed(1), changed(2)));
    source.answers["/list2.xml"] = list({ from: at(2), until: at(3) }, next(3), changed(3));
    source.answers["/list3.xml"] = list({ from: at(3) }, changed(4));
    assert.deepEqual(await read("/c.xml", 2, { position: at(3) }), ["3", "4"]); // at the cursor, too
  });

  for (const [what, page] of Object.entries({
    "a page that is not there": answered(404),
    "a login page": "<html></html>",
    "a page of another kind": document({ capability: "resourcelist" }),
    "a page that leads back": list({ from: at(0) }, link("next", "/list.xml")),
    "a page at another host": list({ from: at(0) }, link("next", "http://a.invalid/")),
  })) {
    test(`is never taken for whole with ${what}`, async () => {
      offer(tooOld(), list({ from: at(0) }, next(2), changed(1)));
      source.answers["/list2.xml"] = page;
      const reading = read("/c.xml", 2, { position: at(0) });
      await assert.rejects(reading, HistoryGone);
    });
  }

  test("ends where pages do not", () => {
    const pages = Array.from({ length: PAGES }, (_, number) => `http://a/${number}`);
    assert.equal(nextAfter(pages.slice(1), "http://a/", "next"), "http://a/next");
    assert.throws(() => nextAfter(pages, "http://a/", "next"), /more than 10000 pages/);
    assert.equal(nextAfter(["https://a/1"], "https://a/1", "http://a/2"), "http://a/2");
    assert.throws(() => nextAfter(["https://a/1"], "https://a/1", "https://a:81/2"), Rejected);
  });

  const gone = { from: at(5) };
  const unread = {
    "a Change List that begins too late": list(gone, changed(6)),
    "a Change List that is broken": "<urlset",
    "a Change List that is not there": answered(404),
    "a Change List that cannot be had for long": answered(503),
    "no Change List": undefined,
  };
  for (const [what, answer] of Object.entries(unread)) {
    test(`with ${what} is told, and then it goes on`, async () => {
      offer(
        ({ from }, response) =>
          (from === at(1) ? answered(410, "{}") : stream(at(7), notification(7, 8, changed(8))))(
            {},
            response,
          ),
        answer,
      );
      const gaps = [];
      assert.deepEqual(await read("/c.xml", 1, { position: at(1), onGap: (gap) => gaps.push(gap) }), [
        "8",
      ]);
      assert.deepEqual(
        gaps.map(({ from, until }) => [from, until]),
        [[at(1), at(7)]],
      );
    });
  }

  test("of a channel that refuses every cursor is asked again after pauses", async () => {
    for (const text of [list({ from: at(0) }, changed(2)), undefined]) {
      offer(answered(410, "{}"), text);
      const ending = new AbortController();
      const onState = ({ state }) => state === "waiting" && ending.abort();
      await read("/c.xml", 9, { position: at(1), onGap: () => {}, onState, signal: ending.signal });
    }
  });

  test("that nobody wants to hear of ends it", async () => {
    offer(answered(410, "{}"));
    await assert.rejects(
      read("/c.xml", 1, { position: at(1) }),
      (error) => error instanceof HistoryGone && error.from === at(1),
    );
  });
});

describe("Change Lists without a channel", () => {
  beforeEach(() => {
    source.answers["/c.xml"] = capabilities(["/list.xml", "changelist"]);
  });

  test("are asked for again and again, and tell what is new", async () => {
    const lists = [
      list({ from: at(0) }, changed(1)),
      list({ from: at(0) }, changed(1), changed(2)),
    ];
    source.answers["/list.xml"] = inTurn(...lists.map((text) => answered(200, text)));
    assert.deepEqual(await read("/c.xml", 2, { position: at(0) }), ["1", "2"]);
  });

  test("may be closed, and new ones begun, while they are read", async () => {
    const named = (from, end) => `from="${at(from)}"${end ? ` until="${at(end)}"` : ""}`;
    const open = (from, ...changes) =>
      list({ from: at(from) }, link("index", "/index.xml"), ...changes);
    source.answers["/index.xml"] = index(
      "changelist",
      ["/one.xml", named(0, 2)],
      ["/list.xml", named(2)],
    );
    source.answers["/list.xml"] = open(2, changed(3));
    source.answers["/two.xml"] = list({ from: at(2), until: at(4) }, changed(3), changed(4));
    source.answers["/one.xml"] = (about, response) => {
      source.answers["/index.xml"] = index(
        "changelist",
        ["/one.xml", named(0, 2)],
        ["/two.xml", named(2, 4)],
        ["/list.xml", named(4)],
      );
      source.answers["/list.xml"] = open(4, changed(5));
      answered(200, list({ from: at(0), until: at(2) }, changed(1), changed(2)))(about, response);
    };
    assert.deepEqual(await read("/c.xml", 5, { position: at(0) }), ["1", "2", "3", "4", "5"]);
  });

  test("tell nothing of before to whoever begins now", async () => {
    const both = list({ from: at(0) }, changed(1), changed(2));
    source.answers["/list.xml"] = inTurn(
      answered(200, list({ from: at(0) }, changed(1))),
      answered(200, list({ from: at(0) }, changed(1))),
      answered(200, both),
    );
    assert.deepEqual(await read("/c.xml", 1), ["2"]);
  });

  test("tell nothing of before either if all of it is of one day, and comes in pieces", async () => {
    const day = (count) =>
      `<url><loc>http://a/${count}</loc><rs:md change="created" datetime="2026-11-20"/></url>`;
    const some = Array.from({ length: 1500 }, (_, count) => day(count));
    const lists = [some, some, [...some, day("new")]];
    source.answers["/list.xml"] = inTurn(...lists.map((all) => answered(200, list({}, ...all))));
    assert.deepEqual(await read("/c.xml", 1), ["new"]);
  });

  test("without any times stand where they were written, or it is said", async (context) => {
    const warned = warningsOf(context);
    const entry = (name) => `<url><loc>http://a/${name}</loc><rs:md change="updated"/></url>`;
    const text = list({ from: at(0) }, entry("x"), entry("y"));
    const headers = { "Last-Modified": "Fri, 20 Nov 2026 00:00:05 GMT" };
    source.answers["/list.xml"] = answered(200, text, headers);
    assert.deepEqual(await read("/c.xml", 2, { position: at(3) }), ["x", "y"]);
    assert.deepEqual(warned, []);
    const signal = AbortSignal.timeout(200);
    assert.deepEqual(await read("/c.xml", 1, { position: at(6), signal }), []);
    source.answers["/list.xml"] = answered(200, text);
    const ending = AbortSignal.timeout(200);
    assert.deepEqual(await read("/c.xml", 1, { position: at(3), signal: ending }), []);
    assert.match(warned[0], /does not say when anything changed: give each change a datetime/);
  });

  test("that begin with the newest are turned round, and that is said", async (context) => {
    const warned = warningsOf(context);
    const before = list({ from: at(0) }, ...[3, 2, 1].map((second) => changed(second)));
    const after = list({ from: at(0) }, ...[5, 4, 3, 2, 1].map((second) => changed(second)));
    source.answers["/list.xml"] = inTurn(...[before, before, after].map((text) => answered(200, text)));
    assert.deepEqual(await read("/c.xml", 2), ["4", "5"]);
    assert.deepEqual(await read("/c.xml", 4, { position: at(2) }), ["2", "3", "4", "5"]);
    assert.match(warned[0], /listed newest first: they are turned round/);
  });

  test("in which an older change of a resource comes later leave that out", async (context) => {
    const warned = warningsOf(context);
    const again = (second) => changed(second, "http://a/x");
    const first = [changed(2), changed(1), again(3), again(2), changed(4)];
    const lists = [first, first, [...first, changed(5)]];
    source.answers["/list.xml"] = inTurn(
      ...lists.map((all) => answered(200, list({ from: at(0) }, ...all))),
    );
    assert.deepEqual(await read("/c.xml", 5, { position: at(0) }), ["2", "1", "x", "4", "5"]);
    assert.match(warned[0], /skipped: http:\/\/a\/x, older than a change before it; 1 in all/);
  });

  test("that are still empty when it begins pass nothing over of what comes", async () => {
    const lists = [list({}), list({}), list({}, changed(1)), list({}, changed(1), changed(2))];
    source.answers["/list.xml"] = inTurn(...lists.map((text) => answered(200, text)));
    assert.deepEqual(await read("/c.xml", 1), ["1"]);
  });

  test("of which the newest is still empty pass nothing over of what comes either", async () => {
    source.answers["/list.xml"] = index("changelist", ["/one.xml", ""], ["/two.xml", ""]);
    source.answers["/one.xml"] = list({}, changed(1));
    const lists = [list({}), list({}, changed(2)), list({}, changed(2), changed(3))];
    source.answers["/two.xml"] = inTurn(...lists.map((text) => answered(200, text)));
    assert.deepEqual(await read("/c.xml", 1), ["2"]);
  });

  test("are read under an index that their index names, the oldest first", async () => {
    source.answers["/list.xml"] = index("changelist", ["/under.xml", `from="${at(0)}"`]);
    source.answers["/under.xml"] = index(
      "changelist",
      ["/two.xml", `from="${at(2)}"`],
      ["/one.xml", `from="${at(0)}" until="${at(2)}"`],
    );
    source.answers["/one.xml"] = list({ from: at(0), until: at(2) }, changed(1), changed(2));
    source.answers["/two.xml"] = list({ from: at(2) }, changed(3));
    assert.deepEqual(await read("/c.xml", 3, { position: at(0) }), ["1", "2", "3"]);
  });

  for (const times of ["", "of an index"]) {
    test(`are read in order from an index that names the newest first ${times}`, async () => {
      const said = (from, until) =>
        times && `from="${at(from)}"${until ? ` until="${at(until)}"` : ""}`;
      source.answers["/list.xml"] = index(
        "changelist",
        ["/two.xml", said(2)],
        ["/one.xml", said(0, 2)],
      );
      source.answers["/one.xml"] = list({ from: at(0), until: at(2) }, changed(1), changed(2));
      source.answers["/two.xml"] = list({ from: at(2) }, changed(3));
      assert.deepEqual(await read("/c.xml", 3, { position: at(0) }), ["1", "2", "3"]);
    });
  }

  const under = (...names) => index("changelist", ...names.map((name) => [`/${name}.xml`, ""]));
  const leadingNowhere = {
    "of themselves": [{ one: under("one") }, /of itself/],
    "that lead back": [{ one: under("two"), two: under("list") }, /of itself/],
    "of nothing": [{ one: under() }, /index of nothing/],
    "that are too deep": [
      { one: under("two"), two: under("three"), three: under("four"), four: list({}) },
      /an index under an index, 4/,
    ],
  };
  for (const [name, [documents, said]] of Object.entries(leadingNowhere)) {
    test(`are refused under indexes ${name}`, async () => {
      source.answers["/list.xml"] = under("one");
      for (const [path, text] of Object.entries(documents)) source.answers[`/${path}.xml`] = text;
      await assert.rejects(read("/c.xml", 1, { position: at(0) }), (error) => {
        assert.ok(error instanceof Rejected);
        assert.match(error.message, said);
        return true;
      });
    });
  }

  test("give no position before the one where it began, with one given or without", async () => {
    const first = answered(200, list({ from: at(0) }, changed(1)));
    const more = list({ from: at(0) }, changed(1), changed(3, "a"), changed(3, "b"));
    for (const from of [at(2), undefined]) {
      source.answers["/list.xml"] = inTurn(first, first, answered(200, more));
      const positions = [];
      for await (const { position } of follow(`${source.url}/c.xml`, {
        ...quick,
        position: from,
      })) {
        if (positions.push(position) === 2) break;
      }
      assert.deepEqual(positions, [from ?? at(1), at(3)]);
    }
  });

  test("of a Source that was set back are followed from where they end, and that is said", async (context) => {
    const warned = warningsOf(context);
    const whole = answered(200, list({ from: at(0) }, changed(1), changed(2), changed(5)));
    source.answers["/list.xml"] = inTurn(
      whole, // to learn whether it is an index
      whole,
      answered(200, list({ from: at(0) }, changed(1), changed(2))),
      answered(200, list({ from: at(0) }, changed(1), changed(2), changed(4))),
    );
    const found = await read("/c.xml", 5, { position: at(0) });
    assert.deepEqual(found, ["1", "2", "5", "2", "4"]); // what is at the cursor may come again
    const problem = `its Change Lists have no change of ${at(5)}, which was read before`;
    const why = "the Source was set back, or a cache has sent an old list";
    assert.deepEqual(warned, [`${source.url}/list.xml: ${problem}: ${why}`]);
  });

  test("of a Source that was set back to nothing are followed from their beginning", async (context) => {
    const warned = warningsOf(context);
    const nothing = answered(200, list({}));
    const whole = answered(200, list({ from: at(0) }, changed(5)));
    source.answers["/list.xml"] = inTurn(
      whole, // to learn whether it is an index
      whole,
      nothing,
      answered(200, list({ from: at(0) }, changed(1))),
    );
    assert.deepEqual(await read("/c.xml", 2, { position: at(0) }), ["5", "1"]);
    assert.equal(warned.length, 1);
  });

  test("are asked for with a condition", async () => {
    const text = list({ from: at(0) }, changed(1));
    const served = ({ headers }, response) =>
      headers["if-none-match"] === '"1"'
        ? answered(304)({}, response)
        : answered(200, text, { ETag: '"1"' })({}, response);
    source.answers["/list.xml"] = served;
    const ending = new AbortController();
    const reading = read("/c.xml", 2, { position: at(0), signal: ending.signal });
    while (!source.asked.some(({ headers }) => headers["if-none-match"]))
      await new Promise(setImmediate);
    ending.abort();
    assert.deepEqual(await reading, ["1"]);
  });

  test("that are called unchanged though nobody knows them were not read", async () => {
    const unasked = /304, unchanged, though nobody asked/;
    const page = list({ from: at(0) }, link("next", "/next.xml"), changed(1));
    const lists = index("changelist", ["/part.xml", `from="${at(0)}"`]);
    for (const [path, text] of [[], ["/part.xml", lists], ["/next.xml", page]]) {
      source.answers["/c.xml"] = capabilities(["/list.xml", "changelist"]);
      source.answers["/list.xml"] = text ?? answered(304);
      source.answers[path] = answered(304);
      const signal = AbortSignal.timeout(2000);
      await assert.rejects(read("/c.xml", 2, { position: at(0), signal }), unasked, path);
    }
  });

  test("are asked for again after trouble, and it is said how it stands", async () => {
    const text = list({ from: at(0) }, changed(1));
    const empty = answered(200, list({ from: at(0) }));
    source.answers["/list.xml"] = inTurn(
      empty,
      empty,
      empty,
      answered(503),
      empty,
      answered(200, text),
    );
    const states = [];
    const onState = ({ state, transport }) => states.push(transport ?? state);
    await read("/c.xml", 1, { position: at(0), onState });
    assert.deepEqual(states, ["polling", "waiting", "polling"]);
  });

  test("may be compressed files", async () => {
    source.answers["/list.xml"] = answered(200, gzipSync(list({ from: at(0) }, changed(1))));
    assert.deepEqual(await read("/c.xml", 1, { position: at(0) }), ["1"]);
  });

  test("may be compressed files of which a single byte comes first", async () => {
    const packed = gzipSync(list({ from: at(0) }, changed(1)));
    source.answers["/list.xml"] = (_, response) => {
      response.writeHead(200).write(packed.subarray(0, 1));
      setTimeout(() => response.end(packed.subarray(1)), 20);
    };
    assert.deepEqual(await read("/c.xml", 1, { position: at(0) }), ["1"]);
  });

  test("may be asked for as rarely as the option allows", async () => {
    source.answers["/list.xml"] = list({ from: at(0) }, changed(1));
    assert.deepEqual(await read("/c.xml", 1, { position: at(0), pollSeconds: OPTION_SECONDS }), ["1"]);
  });

  test("are inflated up to the cap and no further", async () => {
    source.answers["/list.xml"] = answered(200, gzipSync(Buffer.alloc(DOCUMENT_BYTES + 1, " ")));
    await assert.rejects(read("/c.xml", 1, { position: at(0) }), Rejected);
  });

  test("that are damaged when unpacked are refused", async () => {
    const packed = gzipSync(list({ from: at(0) }, changed(1)));
    source.answers["/list.xml"] = answered(200, packed.subarray(0, -9));
    await assert.rejects(read("/c.xml", 2, { position: at(0) }), /not gzip up to its end/);
  });

  test("that are not UTF-8 are refused", async () => {
    source.answers["/list.xml"] = answered(200, Buffer.from([...Buffer.from("<urlset"), 0xff]));
    await assert.rejects(read("/c.xml", 1, { position: at(0) }), /not UTF-8/);
  });

  test("of 0.9, without datetimes, tell their changes by lastmod", async () => {
    const entry =
      '<url><loc>http://a/x</loc><lastmod>2013-01-02T11:00:00Z</lastmod><rs:md change="updated"/></url>';
    source.answers["/list.xml"] = list(
      { from: "2013-01-01T11:00:00Z" },
      link("resourcesync", "/c.xml"),
      entry,
    );
    assert.deepEqual(await read("/list.xml", 1, { position: "2013-01-01T12:00:00Z" }), ["x"]);
  });

  test("of January 2013 are read in the order of their changes", async () => {
    const draft = (text) =>
      text.replace("http://www.openarchives.org/rs/terms/", "http://www.openarchives.org/rs/");
    const entry = (name, hour, change) =>
      `<url><loc>http://a/${name}</loc><lastmod>2012-10-31T0${hour}:00:00Z</lastmod>` +
      `<rs:md change="${change}"/></url>`;
    const told = [entry("d", 6, "deleted"), entry("a", 5, "updated"), entry("c", 4, "created")];
    source.answers["/c.xml"] = draft(capabilities(["/list.xml", "changelist"]));
    source.answers["/list.xml"] = draft(list({ modified: at(1) }, link("top", "/c.xml"), ...told));
    for (const path of ["/c.xml", "/list.xml"]) {
      assert.deepEqual(await read(path, 3, { position: "2012-10-31T02:00:00Z" }), ["c", "a", "d"]);
    }
  });

  test("are found by an index of Capability Lists", async () => {
    source.answers["/list.xml"] = list({ from: at(0) }, changed(1));
    source.answers["/index.xml"] = index("capabilitylist", ["/c.xml", 'type="a"']);
    assert.deepEqual(await read("/index.xml", 1, { position: at(0) }), ["1"]);
    source.answers["/index.xml"] = index("capabilitylist", ["/c.xml", ""], ["/d.xml", ""]);
    await assert.rejects(read("/index.xml", 1), /offers 2 sets of resources/);
  });
});

describe("long polls", () => {
  const STREAM = "/streams/set";
  const polled = { transport: "long-poll", position: at(1) };
  const message = (second) => ({
    loc: `http://a/${second}`,
    change: "updated",
    datetime: at(second),
  });
  const told =
    (second, messages, more = {}) =>
    (_, response) => {
      const headers = { "Stream-Next-Offset": at(second), ...more };
      response.writeHead(messages ? 200 : 204, headers);
      response.end(messages && JSON.stringify(messages));
    };

  test("ask as caches share it, and hand on each change once", async () => {
    offer(answered(404));
    const questions = [];
    const answers = [
      told(2, [message(2)], { "Stream-Cursor": "7" }),
      told(2),
      told(4, [message(3), message(4)]),
    ];
    source.answers[STREAM] = (about, response) => {
      questions.push(about.query);
      answers.shift()(about, response);
    };
    assert.deepEqual(await read("/c.xml", 3, polled), ["2", "3", "4"]);
    const place = (second) => `offset=${encodeURIComponent(at(second))}`;
    assert.deepEqual(questions, [
      place(1),
      `cursor=7&live=long-poll&${place(2)}`,
      `live=long-poll&${place(2)}`,
    ]);
  });

  test("follow where two channels in a row have brought nothing", async () => {
    const states = [];
    offer(brokenStream(at(1)));
    source.answers[STREAM] = inTurn(told(1, []), told(2, [message(2)]), told(2));
    const onState = ({ state, transport }) => states.push(transport ?? state);
    const options = { position: at(1), transport: undefined, onState };
    assert.deepEqual(await read("/c.xml", 1, options), ["2"]);
    assert.deepEqual(states, ["sse", "waiting", "sse", "waiting", "long-poll"]);
  });

  for (const [what, silent] of [
    ["answers 504", answered(504)],
    ["ends the connection", (_, response) => response.destroy()],
  ]) {
    test(`follow a channel that is given by its address and ${what}`, async () => {
      source.answers[CHANNEL] = silent;
      source.answers[STREAM] = inTurn(told(1, []), told(2, [message(2)]), told(2));
      const options = { position: at(1), transport: undefined, WebSocket: undefined };
      assert.deepEqual(await read(CHANNEL, 1, options), ["2"]);
    });

    test(`read its lists, once they can be found, where it ${what}`, async () => {
      offer(undefined, list({ from: at(1) }, changed(2), changed(3)));
      const page = answered(200, "", { Link: '</c.xml>; rel="resourcesync"' });
      const pages = inTurn(silent, silent, page);
      source.answers[CHANNEL] = (about, response) =>
        (about.headers.accept === "text/event-stream" ? silent : pages)(about, response);
      source.answers[STREAM] = inTurn(answered(410), told(4, [message(4)]));
      const options = { position: at(1), transport: undefined, WebSocket: undefined };
      assert.deepEqual(await read(CHANNEL, 3, options), ["2", "3", "4"]);
    });
  }

  test("read the lists where the stream is too old", async () => {
    const from = { from: at(1) };
    offer(answered(404), list(from, changed(2), changed(3)));
    source.answers[STREAM] = inTurn(answered(410), told(4, [message(4)]));
    assert.deepEqual(await read("/c.xml", 3, polled), ["2", "3", "4"]);
  });

  test("that are no answer of a stream never move the place", async () => {
    for (const [answer, error] of [
      [answered(404, "<html>"), /nothing at this address/],
      [answered(200, "[]"), /is no channel/],
    ]) {
      offer(answered(404));
      source.answers[STREAM] = answer;
      await assert.rejects(read("/c.xml", 1, polled), error);
    }
    for (const bad of ["{}", "<html>", "null"]) {
      offer(answered(404));
      const broken = (_, response) =>
        response.writeHead(200, { "Stream-Next-Offset": at(9) }).end(bad);
      source.answers[STREAM] = inTurn(broken, told(2, [message(2)]));
      assert.deepEqual(await read("/c.xml", 1, polled), ["2"]);
    }
  });

  test("of a peer that does not wait are asked after longer and longer pauses", async (context) => {
    const pauses = [];
    const { setTimeout } = globalThis;
    globalThis.setTimeout = (act, wait, ...words) => {
      if (wait < 1_000) pauses.push(wait);
      return setTimeout(act, wait, ...words);
    };
    context.after(() => Object.assign(globalThis, { setTimeout }));
    offer(answered(404));
    source.answers[STREAM] = inTurn(...Array(7).fill(told(1)), told(2, [message(2)]));
    assert.deepEqual(await read("/c.xml", 1, polled), ["2"]);
    assert.deepEqual(pauses, [10, 20, 40, 80]);
  });

  test("of a channel that has no stream are refused with the way out", async () => {
    source.answers["/c.xml"] = capabilities(["/elsewhere", "change-notification"]);
    await assert.rejects(read("/c.xml", 1, polled), /leave transport out/);
  });
});

describe("a state", () => {
  const resource = (name) => `<url><loc>http://a/${name}</loc></url>`;
  const resources = (md, ...names) =>
    document({ capability: "resourcelist", ...md }, ...names.map(resource));

  function withLists(resourceList, ...changes) {
    source.answers["/c.xml"] = capabilities(
      ["/list.xml", "changelist"],
      ["/resources.xml", "resourcelist"],
    );
    source.answers["/list.xml"] = list({ from: at(0) }, ...changes);
    source.answers["/resources.xml"] = resourceList;
  }

  test("comes before all that has changed since, and has no position", async () => {
    withLists(resources({ at: at(2) }, "a", "b"), changed(1), changed(3));
    const found = [];
    for await (const change of follow(`${source.url}/c.xml`, { ...quick, state: true })) {
      found.push([change.loc, change.isState, change.position]);
      if (found.length === 3) break;
    }
    const state = ["a", "b"].map((name) => [`http://a/${name}`, true, undefined]);
    assert.deepEqual(found, [...state, ["http://a/3", undefined, at(3)]]);
    assert.deepEqual(await read("/c.xml", 1, { state: true, position: at(2) }), ["3"]);
  });

  test("is read from the parts of an index, each resource once though it breaks off", async () => {
    const named = (name) => [`/${name}.xml`, `at="${at(2)}"`];
    withLists(index("resourcelist", named("one"), named("two")), changed(3));
    source.answers["/resources.xml"] = source.answers["/resources.xml"].replace(
      '"resourcelist"',
      `"resourcelist" at="${at(2)}"`,
    );
    source.answers["/one.xml"] = resources({ at: at(2) }, "a", "b");
    source.answers["/two.xml"] = inTurn(answered(503), (_, response) =>
      response.end(resources({ at: at(2) }, "c")),
    );
    assert.deepEqual(await read("/c.xml", 4, { state: true }), ["a", "b", "c", "3"]);
  });

  test("that cannot be joined with changes is refused with the reason", async () => {
    withLists(resources({}, "a"));
    await assert.rejects(read("/c.xml", 1, { state: true }), /does not say of when it is/);
    offer(answered(404), list({}));
    await assert.rejects(read("/c.xml", 1, { state: true }), /offers no Resource List/);
    await assert.rejects(read("/c.xml", 1, { state: true, shared: true }), /leave shared out/);
  });
});
