// What is left of what others send; the same cases as for the hub, in tests/unit/test_change_filter.py.

import assert from "node:assert/strict";
import test from "node:test";

import { Rejected } from "../lib/errors.js";
import { Wanted } from "../lib/wanted.js";

const LOC = "http://example.com/papers/1";
const [PDF, HTML] = ["application/pdf", "text/html"];
const [THESES, BOOKS] = ["http://example.com/theses", "http://example.com/books"];

const change = (kind, more = {}) => ({ loc: LOC, change: kind, ...more });
const within = (...hrefs) => ({ links: hrefs.map((href) => ({ rel: "collection", href })) });
const former = (type, ...hrefs) => ({
  links: (hrefs.length ? hrefs : [LOC]).map((href) => ({ rel: "urn:rsnotify:former", href, type })),
});

const CASES = [
  [{}, change("updated"), true],
  [{ prefix: "http://example.com/papers/" }, change("updated"), true],
  [{ prefix: ["http://example.com/a", LOC] }, change("deleted"), true],
  [{ prefix: "http://example.com/theses/" }, change("deleted"), false],
  [{ change: "created" }, change("created"), true],
  [{ change: "created" }, change("updated"), false],
  [{ change: ["created", "updated"] }, change("updated"), true],
  [{ change: "created" }, change("deleted"), true],
  [{ type: PDF }, change("updated", { type: "Application/PDF; version=1.7" }), true],
  [{ type: PDF }, change("created", { type: HTML }), false],
  [{ type: PDF }, change("created"), false],
  [{ type: "image/*" }, change("created", { type: "image/png" }), true],
  [{ type: "image/*" }, change("created", { type: "imagery/png" }), false],
  [{ type: PDF }, change("updated", { type: HTML }), true], // nobody knows
  [{ type: PDF }, change("updated", { type: HTML, ...former(PDF) }), true],
  [{ type: PDF }, change("updated", { type: HTML, ...former(HTML) }), false],
  [{ type: PDF, change: "created" }, change("updated", { type: HTML, ...former(PDF) }), true],
  [{ type: PDF }, change("deleted"), true],
  [{ type: PDF }, change("deleted", former(HTML)), false],
  [{ type: PDF }, change("deleted", former(undefined)), false],
  [{ collection: THESES }, change("created", within(BOOKS, THESES)), true],
  [{ collection: THESES }, change("created", within(BOOKS)), false],
  [{ collection: THESES }, change("deleted", former(PDF, BOOKS)), false],
  [{ collection: THESES }, change("deleted", former(PDF, THESES)), true],
  [{ collection: LOC }, change("deleted", former(PDF)), false],
  [{ type: PDF, collection: THESES }, change("created", { type: PDF, ...within(BOOKS) }), false],
];

for (const [options, entry, isLeft] of CASES) {
  test(`${JSON.stringify(options)} ${isLeft ? "takes" : "drops"} ${JSON.stringify(entry)}`, () => {
    const received = { from: "a", until: "b", timed: [{ position: "b", change: entry }] };
    const left = new Wanted(options).leftOf(received);
    assert.deepEqual([left.from, left.until, left.timed.length], ["a", "b", isLeft ? 1 : 0]);
  });
}

test("an address keeps what it has, and gets what is wanted in one order", () => {
  const wanted = new Wanted({ type: ["b/c", "a/b"], prefix: "http://a/?x=1&y" });
  const url = "ws://h/channels/s/change_notification_channel?from=2026-01-01T00:00:00Z";
  assert.equal(
    wanted.asked(url),
    `${url}&prefix=http:%2F%2Fa%2F%3Fx%3D1%26y&type=a%2Fb&type=b%2Fc`,
  );
  assert.equal(new Wanted({}).asked(url), url);
  assert.equal(wanted.key, new Wanted({ prefix: ["http://a/?x=1&y"], type: ["a/b", "b/c"] }).key);
});

test("a list of the hub of the channel is asked for a part", () => {
  const wanted = new Wanted({ change: "created" });
  const channel = "wss://h:1/p/channels/a/change_notification_channel";
  for (const [url, isAsked] of [
    ["https://h:1/p/a/changelist.xml", true],
    ["https://h:1/p/a/changelist/2026-11-20T00:00:00.000000Z.xml", true],
    ["https://h:1/p/a/changelist-index.xml", false],
    ["https://h:1/p/b/changelist.xml", false],
    ["http://h:1/p/a/changelist.xml", false],
  ]) {
    assert.equal(wanted.askedOfHub(channel, url), url + (isAsked ? "?change=created" : ""));
    assert.equal(wanted.askedOfHub(undefined, url), url);
  }
});

for (const wrong of [{ prefix: "" }, { type: [""] }, { change: 1 }, { collection: [null] }]) {
  test(`${JSON.stringify(wrong)} is refused`, () => {
    assert.throws(() => new Wanted(wrong), Rejected);
  });
}
