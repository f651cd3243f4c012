// What is decided without a network: positions, notifications, joining, retries, discovery, lists.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";

import {
  beginning,
  ChangeLists,
  listsAfter,
  namedLists,
} from "../lib/changelists.js";
import { eventParser, NOTIFICATION_CHARS, Queue } from "../lib/channel.js";
import {
  foundIn,
  linked,
  linkedInHtml,
  offered,
  sitemapsOf,
} from "../lib/discovery.js";
import { parseDocument } from "../lib/document.js";
import { HistoryGone, NotJoined, Rejected, TryAgain } from "../lib/errors.js";
import { Furthest } from "../lib/furthest.js";
import { readNotification, withPositions } from "../lib/notification.js";
import { question } from "../lib/polls.js";
import { positionOf } from "../lib/position.js";
import { delaySeconds, LONGEST_SECONDS } from "../lib/retry.js";
import { Mailbox } from "../lib/shared.js";
import { Timeline } from "../lib/timeline.js";
import {
  Web,
  httpTwin,
  retryAfter,
  PAGE_CHARS,
  RETRY_AFTER_SECONDS,
  textOf,
  withQuery,
} from "../lib/web.js";

const EXAMPLES = new URL("../../../tests/specification/examples/", import.meta.url);
const example = (name) => readFileSync(new URL(`${name}.xml`, EXAMPLES), "utf8");
const at = (second) => `2026-11-20T00:00:${String(second).padStart(2, "0")}.000000Z`;

describe("questions to streams", () => {
  test("the parameters stand in the order of their names, and then of their values", () => {
    const url = "http://a/streams/b?type=image/*&prefix=http://b/&change=created&prefix=http://a/~b";
    assert.equal(
      question(url, { offset: "2026-11-20T21:34:00.123456Z", live: "long-poll", cursor: "7" }),
      "http://a/streams/b?change=created&cursor=7&live=long-poll" +
        "&offset=2026-11-20T21%3A34%3A00.123456Z" +
        "&prefix=http%3A%2F%2Fa%2F%7Eb&prefix=http%3A%2F%2Fb%2F&type=image%2F*",
    );
  });
});

describe("positions", () => {
  const known = {
    "2026-11-20T21:34:00.123456Z": "2026-11-20T21:34:00.123456Z",
    "2026-11-20T21:34:00Z": "2026-11-20T21:34:00.000000Z",
    "2026-11-20T21:34:00.1234567Z": "2026-11-20T21:34:00.123456Z",
    "2026-11-20T21:34:00.5+02:00": "2026-11-20T19:34:00.500000Z",
    "2026-11-20T23:34-01:30": "2026-11-21T01:04:00.000000Z",
    "2026-11-20": "2026-11-20T00:00:00.000000Z",
    "2026-11": "2026-11-01T00:00:00.000000Z",
    2026: "2026-01-01T00:00:00.000000Z",
    " 2026-11-20T21:34:00Z\n": "2026-11-20T21:34:00.000000Z",
  };
  for (const [written, position] of Object.entries(known)) {
    test(`${written} is ${position}`, () => assert.equal(positionOf(written), position));
  }
  for (const written of [
    "",
    undefined,
    "now",
    "2026-13-01",
    "2026-02-30T00:00:00Z",
    "2026-11-20T21:34:00",
    "2026-11-20T24:00:00Z",
    "2026-11-20T21:34:00+24:00",
    "0000-01-01T00:00:00+01:00",
  ]) {
    test(`${written} is none`, () => assert.equal(positionOf(written), undefined));
  }
});

describe("notifications", () => {
  test("1.0.1 says its interval", () => {
    const { from, until, timed, joins } = readNotification(
      example("change_notification_1.0.1_ex_1"),
    );
    assert.deepEqual(
      [from, until, joins],
      ["2013-01-03T00:00:00.000000Z", "2013-01-03T00:10:00.000000Z", true],
    );
    assert.deepEqual(
      timed.map(({ position }) => position),
      ["2013-01-03T00:07:22.000000Z", "2013-01-03T00:08:52.000000Z"],
    );
    assert.equal(timed[1].change.hash.split(" ").length, 2);
  });

  test("0.8 says none, and is known by when its changes happened", () => {
    const { from, until, joins } = readNotification(example("notification_0.8_ex_2"));
    assert.deepEqual(
      [from, until, joins],
      ["2013-01-02T13:03:00.000000Z", "2013-01-02T13:23:00.000000Z", false],
    );
  });

  test("one that says neither is refused", () => {
    const text =
      '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>a</loc></url></urlset>';
    assert.throws(() => readNotification(text), Rejected);
  });

  test("each change has the position up to which all before it is dealt with", () => {
    const timed = [1, 2, 2, 3].map((second) => ({ position: at(second), change: {} }));
    const found = withPositions({ from: at(0), until: at(9), timed });
    const positions = found.map(({ position }) => position);
    assert.deepEqual(positions, [at(1), at(1), at(2), at(9)]);
  });
});

describe("the timeline", () => {
  const change = (loc, hash) => ({ loc, change: "updated", hash });
  const received = (from, until, timed = [], joins = true) => ({ from, until, joins, timed });
  const told = (second, loc, hash) => ({ position: at(second), change: change(loc, hash) });
  const locs = (found) => found?.timed.map((each) => each.change.loc);

  test("takes what joins it, and what overlaps without what it has", () => {
    const timeline = new Timeline(at(1));
    assert.deepEqual(locs(timeline.joined(received(at(1), at(3), [told(2, "a"), told(3, "b")]))), [
      "a",
      "b",
    ]);
    assert.deepEqual(locs(timeline.joined(received(at(0), at(4), [told(2, "a"), told(4, "c")]))), [
      "c",
    ]);
    const again = received(at(1), at(3), [told(2, "a"), told(3, "b")]);
    assert.equal(timeline.joined(again), undefined);
    assert.equal(timeline.cursor, at(4));
  });

  test("refuses what begins after it, by a microsecond", () => {
    const timeline = new Timeline(at(1));
    const late = at(1).replace("000Z", "001Z");
    assert.throws(() => timeline.joined(received(late, at(2), [told(2, "a")])), NotJoined);
    assert.equal(timeline.cursor, at(1));
  });

  test("begins where the peer says, but never goes back", () => {
    const timeline = new Timeline();
    const reached = [at(2), at(1), at(3)].map(
      (position) => timeline.begin(position) ?? timeline.cursor,
    );
    assert.deepEqual(reached, [at(2), at(2), at(3)]);
  });

  test("takes what says no interval as it comes", () => {
    const timeline = new Timeline(at(1));
    assert.deepEqual(locs(timeline.joined(received(at(5), at(5), [told(5, "a")], false))), ["a"]);
  });

  test("tells changes of one moment apart", () => {
    const timeline = new Timeline(at(0));
    timeline.newIn(received(at(0), at(1), [told(1, "a"), told(1, "b")]));
    assert.deepEqual(locs(timeline.newIn(received(at(0), at(1), [told(1, "b"), told(1, "c")]))), [
      "c",
    ]);
  });

  test("tells two versions of one moment apart if both have a digest", () => {
    const timeline = new Timeline(at(0));
    timeline.newIn(received(at(0), at(1), [told(1, "a", "md5:1")]));
    assert.equal(timeline.newIn(received(at(0), at(1), [told(1, "a", "md5:1")])), undefined);
    assert.equal(timeline.newIn(received(at(0), at(1), [told(1, "a", undefined)])), undefined);
    assert.deepEqual(locs(timeline.newIn(received(at(0), at(1), [told(1, "a", "md5:2")]))), ["a"]);
  });

  test("tells changes apart by their times where they come after a clock stepped back", () => {
    const timeline = new Timeline(at(0)); // they stand at the cursor; none has a digest
    const all = [9, 1, 2].map((second) => ({ ...change("a"), datetime: at(second) }));
    const listed = (count) =>
      all.slice(0, count).map((each) => ({ position: at(9), change: each }));
    const found = [1, 2, 3].flatMap(
      (count) => timeline.newIn(received(at(0), at(9), listed(count)))?.timed ?? [],
    );
    assert.deepEqual(
      found.map((each) => each.change),
      all,
    );
  });

  const [one, other] = [at(1), at(0)];
  for (const [what, first, then] of [
    ["a digest", {}, { hash: "md5:1", length: 1 }],
    ["a time", {}, { datetime: one }],
    ["both times", { lastmod: other }, { lastmod: other, datetime: one }],
  ]) {
    test(`takes a change of which the list alone says ${what} for the same`, () => {
      const timeline = new Timeline(at(0));
      const listed = (more) => [{ position: at(1), change: { ...change("a"), ...more } }];
      timeline.joined(received(at(0), at(1), listed(first)));
      assert.equal(timeline.newIn(received(at(0), at(1), listed(then))), undefined);
    });
  }

  test("hands a stretch without changes on only if the cursor moves", () => {
    const timeline = new Timeline(at(2));
    const empty = [received(at(0), at(1)), received(at(0), at(2)), received(at(2), at(3))];
    assert.deepEqual(
      empty.map((each) => timeline.newIn(each)),
      [undefined, undefined, empty[2]],
    );
  });
});

describe("the retry schedule", () => {
  test("doubles up to its longest, all of it chance", () => {
    assert.deepEqual(
      [0, 1, 2, 5, 6, 7, 99].map((n) => delaySeconds(n, 0.5)),
      [0.25, 0.5, 1, 8, 15, 15, 15],
    );
    assert.equal(delaySeconds(99, 0), 0);
    assert.ok(delaySeconds(99, 0.999999) < LONGEST_SECONDS);
  });

  test("waits as long as the hub says, and spreads after it", () => {
    assert.equal(delaySeconds(0, 0.5, 7), 7.25);
  });

  test("understands Retry-After as seconds and as a date, an hour at most", () => {
    const now = Date.parse("Sat, 21 Nov 2026 00:00:00 GMT");
    const read = (text) => retryAfter(text, now);
    assert.deepEqual(
      ["7", "Sat, 21 Nov 2026 00:01:00 GMT", "99999", "soon", "-1", null].map(read),
      [7, 60, RETRY_AFTER_SECONDS, 0, 0, 0],
    );
  });
});

describe("discovery", () => {
  test("reads links from headers, pages and robots.txt", () => {
    assert.equal(linked('<a>; rel=self, <b>; rel="x resourcesync"', "resourcesync"), "b");
    assert.equal(linked('<a>; rel="self"', "resourcesync"), undefined);
    assert.equal(linkedInHtml("<link href=a rel='ResourceSync'>"), "a");
    assert.equal(linkedInHtml('<link rel="resourcesync" href="/a?b&amp;c">'), "/a?b&c");
    assert.equal(linkedInHtml("<a href=a rel='resourcesync'>"), undefined);
    assert.deepEqual(sitemapsOf("User-agent: *\nsitemap: http://a/\nSitemap:http://b/"), [
      "http://a/",
      "http://b/",
    ]);
  });

  const LARGE = 500_000; // in quadratic time this would take minutes

  test("reads large pages and robots.txt in linear time, whatever stands there", () => {
    const robots = `${"\n".repeat(LARGE)}x\nSitemap: http://a/`;
    assert.deepEqual(sitemapsOf(robots), ["http://a/"]);
    assert.equal(linkedInHtml(`${"<link ".repeat(LARGE)}>`), undefined);
    const page = `${"<link ".repeat(LARGE)}<link rel=resourcesync href=a>`;
    assert.equal(linkedInHtml(page), "a");
  });

  const [socket, topic] = ["ws://example.com/channel", "http://example.com/channel"];
  const channels = {
    "1.0.1": [{ loc: topic, links: [{ rel: "hub", href: "http://hub/" }] }, [undefined, topic]],
    "1.0.1 with an alternate": [
      { loc: topic, links: [{ rel: "alternate", href: socket }] },
      [socket, topic],
    ],
    0.8: [{ loc: socket, links: [] }, [socket, undefined]],
  };
  for (const [version, [entry, expected]] of Object.entries(channels)) {
    test(`finds the channel of ${version}`, () => {
      const found = offered("http://example.com/", [
        { md: { capability: "change-notification" }, ...entry },
      ]);
      assert.deepEqual([found.socket, found.topic], expected);
    });
  }

  test("finds everything in the Capability List of 0.8", () => {
    const { source } = foundIn(
      "http://example.com/c.xml",
      ...headAndEntries("notification_0.8_ex_1"),
    );
    assert.equal(source.changelist, "http://example.com/dataset1/changelist.xml");
    assert.match(source.socket, /^ws:.*change_notification_channel$/);
  });

  test("goes up from a document, and from a description to its only list", () => {
    const md = (capability) => ({ md: { capability }, links: [] });
    const up = { ...md("changelist"), links: [{ rel: "up", href: "/c.xml" }] };
    assert.equal(foundIn("http://a/x", up, []).next, "http://a/c.xml");
    assert.equal(
      foundIn("http://a/x", md("description"), [{ loc: "http://a/c.xml" }]).next,
      "http://a/c.xml",
    );
    assert.deepEqual(foundIn("http://a/x", md("changelist"), []).source, {
      url: "http://a/x",
      changelist: "http://a/x",
    });
  });

  test("names the sets of a Source that has several", () => {
    const description = { md: { capability: "description" }, links: [] };
    const lists = ["http://a/1.xml", "http://a/2.xml"].map((loc) => ({ loc }));
    assert.throws(
      () => foundIn("http://a/", description, lists),
      /give the address of one: .*1\.xml, .*2\.xml/,
    );
    assert.throws(() => foundIn("http://a/", description, []), /no set of resources yet/);
  });
});

function headAndEntries(name) {
  const { entries, ...head } = parseDocument(example(name));
  return [head, entries];
}

describe("Change Lists", () => {
  const list = (from, until) => ({
    loc: `${from}`,
    from: from && at(from),
    until: until && at(until),
  });
  const names = (lists) => lists.map(({ loc }) => loc);

  test("are read from the one in which the cursor lies", () => {
    const lists = [list(1, 3), list(3, 5), list(5)];
    assert.deepEqual(names(listsAfter(lists, at(4))), ["3", "5"]);
    assert.deepEqual(names(listsAfter(lists, at(3))), ["1", "3", "5"]);
    assert.deepEqual(names(listsAfter(lists, undefined)), ["1", "3", "5"]);
  });

  test("that end in a whole second, or were changed in one, may reach to its end", () => {
    const [inIt, after] = [at(3).replace("000000Z", "700000Z"), at(4)];
    const changedIn = { loc: "changed", modified: at(3) };
    for (const each of [list(1, 3), changedIn]) {
      assert.deepEqual(listsAfter([each], inIt), [each]);
      assert.deepEqual(listsAfter([each], after), []);
    }
  });

  test("that do not join, or begin after the cursor, tell of a gap", () => {
    assert.throws(() => listsAfter([list(1, 3), list(4)], at(2)), HistoryGone);
    assert.throws(() => listsAfter([list(5)], at(4)), HistoryGone);
  });

  test("of an index say their intervals", () => {
    const [head, entries] = headAndEntries("core_1.1_html_ex_20");
    const lists = namedLists("http://example.com/", entries);
    assert.equal(head.root, "sitemapindex");
    assert.ok(beginning(lists) <= lists[1].from);
  });
});

describe("Change Lists that were read before", () => {
  const fraction = (second) => at(second).replace("000000Z", "500000Z");
  const changes = (...positions) =>
    positions.map((position) => ({ position, change: { datetime: position } }));
  const before = { change: at(5), end: at(7) };
  const rows = [
    ["go on", (now) => now.noteChanges(changes(at(5), at(8))), undefined],
    ["are unchanged", (now) => now.noteOther(at(7)), undefined],
    ["are closed at another fraction of that second", (now) => now.noteOther(at(7)), undefined],
    ["end before", (now) => now.noteChanges(changes(at(5), at(6))), /end before/],
    [
      "say a later end without the change",
      (now) => {
        now.noteChanges(changes(at(4)));
        now.noteEnd(at(9));
      },
      /no change of/,
    ],
    ["are empty", () => {}, /no change of/],
    ["say of a change no time", (now) => now.noteChanges([{ change: {} }]), undefined],
  ];
  for (const [what, note, problem] of rows) {
    test(`${what}: ${problem ? "their Source was set back" : "their Source was not set back"}`, () => {
      const now = new Furthest();
      note(now);
      const said = now.shorterThan(what.includes("fraction") ? { end: fraction(7) } : before);
      if (problem) assert.match(said, problem);
      else assert.equal(said, undefined);
    });
  }

  test("go as far as their newest change, and their newest end", () => {
    const now = new Furthest();
    now.noteChanges(changes(at(1), at(3), at(2)));
    now.noteEnd(undefined);
    now.noteEnd(at(4));
    now.noteOther(at(9));
    assert.deepEqual([now.change, now.end], [at(3), at(4)]);
  });
});

describe("event streams", () => {
  const EVENTS = "id: 1\nretry: 1000\n\ndata: a\ndata:b\r\n\r\n: comment\n\ndata\n\ndata: c";

  test("give the data of each whole event, however it is cut", () => {
    for (const size of [1, 2, 3, 100]) {
      const parse = eventParser();
      const found = [];
      for (let at = 0; at < EVENTS.length; at += size)
        found.push(...parse(EVENTS.slice(at, at + size)));
      assert.deepEqual(found, ["a\nb", ""]);
    }
  });

  test("may end their lines with CR, or with CR and LF, in whatever pieces they come", () => {
    for (const end of ["\r", "\r\n"]) {
      const events = EVENTS.replaceAll(/\r?\n/g, end);
      for (const size of [1, 2, 3, events.length]) {
        const parse = eventParser();
        const found = [];
        for (let at = 0; at < events.length; at += size)
          found.push(...parse(events.slice(at, at + size)), ...parse(""));
        assert.deepEqual(found, ["a\nb", ""], JSON.stringify([end, size]));
      }
    }
  });

  test("may have fields of other names, which say nothing", () => {
    assert.deepEqual(eventParser()("database: x\n\ndata: a\ndata-x: b\n\n"), ["a"]);
  });

  test("may have an event of so many characters and not one more", () => {
    const [parse, next] = [eventParser(), eventParser()];
    assert.deepEqual(parse(`data: ${"a".repeat(NOTIFICATION_CHARS - 6)}`), []);
    assert.throws(() => next(`data: ${"a".repeat(NOTIFICATION_CHARS - 5)}`), TryAgain);
  });
});

describe("what waits for a slow reader", () => {
  test("is told up to the bound, then the connection is given up", async () => {
    const queue = new Queue(4);
    for (const text of ["ab", "cd", "e", "f"]) queue.put(text);
    const found = [];
    await assert.rejects(async () => {
      for await (const text of queue) found.push(text);
    }, TryAgain);
    assert.deepEqual(found, ["ab", "cd", "e"]);
  });

  test("is dropped in a tab that is far behind, but what has no size stays", async () => {
    const mailbox = new Mailbox(4);
    mailbox.put("a", 2);
    mailbox.put("state");
    mailbox.put("b", 2);
    mailbox.put("c", 1);
    assert.deepEqual([await mailbox.next(), await mailbox.next()], ["state", "c"]);
  });
});

describe("a body", () => {
  const PIECE = new Uint8Array(64 * 1024).fill(0x20);
  const body = (pull) => ({ url: "http://a/", body: new ReadableStream({ pull }) });

  test("that never ends is read up to the cap", async () => {
    const text = await textOf(body((controller) => controller.enqueue(PIECE)));
    assert.equal(text.length, PAGE_CHARS + PIECE.length);
  });

  test("of an answer that brings nothing is let go, so that its connection is free", async () => {
    const left = [];
    const cancel = () => left.push("body");
    const fetch = async () => new Response(new ReadableStream({ cancel }), { status: 503 });
    const web = new Web({ url: "http://a/", fetch });
    await assert.rejects(web.page("http://a/"), TryAgain);
    await assert.rejects(new ChangeLists(web, "http://a/").end(), TryAgain);
    assert.deepEqual(left, ["body", "body"]);
  });

  test("that says nothing, or drips, is given up when its time is over", async () => {
    await assert.rejects(
      textOf(
        body(() => new Promise(() => {})),
        0.02,
      ),
      /said nothing/,
    );
    const drip = async (controller) => {
      await new Promise(setImmediate);
      controller.enqueue(PIECE.slice(0, 1));
    };
    const silent = (error) => assert.match(error.message, /said nothing/) ?? ""; // a busy machine
    assert.ok((await textOf(body(drip), 0.02).catch(silent)).length < PAGE_CHARS);
  });
});

describe("addresses", () => {
  test("have their cursor in the query, in place of an older one", () => {
    assert.equal(withQuery("ws://a/c?x=1&from=0", "from", at(1)), `ws://a/c?x=1&from=${at(1)}`);
    assert.equal(httpTwin("wss://a/c"), "https://a/c");
    assert.equal(httpTwin("http://a/ws://"), "http://a/ws://");
  });

  test("of the token's own origin show it, and no others", async () => {
    const shown = [];
    const fetch = async (url, { headers }) => {
      shown.push([url, headers.Authorization]);
      return new Response();
    };
    const web = new Web({ token: "rsn_t", url: "ws://a/channel", fetch });
    await web.ask("http://a/x");
    await web.ask("http://b/x");
    assert.deepEqual(shown, [
      ["http://a/x", "Bearer rsn_t"],
      ["http://b/x", undefined],
    ]);
    const made = [];
    class Socket {
      constructor(...words) {
        made.push(words);
      }
    }
    await web.socket(Socket, "ws://a/channel");
    await web.socket(Socket, "ws://b/channel");
    const protocols = ["rsnotify.xml", "rsnotify.token.rsn_t"];
    assert.deepEqual(made, [["ws://a/channel", protocols], ["ws://b/channel"]]);
  });

  test("never have the token in them, not even where nothing else can carry it", async (context) => {
    Object.assign(globalThis, { document: {}, location: { origin: "http://page" } });
    context.after(() => delete globalThis.document && delete globalThis.location);
    const asked = [];
    const fetch = async (url, { headers }) => {
      asked.push([url, headers.Authorization]);
      return new Response();
    };
    const web = new Web({ token: "with space", url: "http://a/", fetch });
    await web.ask("http://a/x");
    assert.deepEqual(asked, [["http://a/x", "Bearer with space"]]);
    assert.equal(await web.socket(assert.fail, "ws://a/c"), undefined);
  });

  test("are told without a token that stands in them", async () => {
    const fetch = async (url) => {
      const body = new ReadableStream({ pull: (controller) => controller.error(new Error("cut")) });
      return Object.defineProperty(new Response(body), "url", { value: url });
    };
    const answer = await new Web({ url: "http://a/", fetch }).ask(
      `http://a/x?access_token=rsn_t&from=${at(1)}`,
    );
    const why = (error) => error.message.startsWith(`http://a/x?from=${at(1)} cannot`);
    await assert.rejects(textOf(answer), why);
    const page = await new Web({
      url: "http://a/",
      fetch: async (url) => Object.defineProperty(new Response("x"), "url", { value: url }),
    }).page("http://a/y?access_token=rsn_t");
    assert.equal(page.url, "http://a/y");
  });
});
