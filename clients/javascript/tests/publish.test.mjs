// Publishing to a hub that answers what the test wants.

import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import { inspect } from "node:util";

import { publish, Rejected, TryAgain } from "../rsnotify.js";
import { answered, serve } from "./servers.mjs";

Math.random = () => 0.02; // no test needs long pauses between attempts

const PATH = "/api/sets/set/changes";
const CHANGE = { loc: "http://a/1", change: "updated" };
const ACCEPTED = { accepted: 1, from: "a", until: "b" };
const accept = answered(201, JSON.stringify(ACCEPTED));
const hangUp = (_, response) => response.destroy();
const breakOff = (_, response) => {
  response.writeHead(201, { "Content-Length": 100 });
  response.write("{");
  setTimeout(() => response.destroy(), 10);
};

let hub;

beforeEach(async () => {
  hub = await serve({});
});

afterEach(() => hub.close());

function answerInTurn(...answers) {
  hub.answers[PATH] = (about, response) =>
    (answers.length > 1 ? answers.shift() : answers[0])(about, response);
}

describe("publishing", () => {
  test("sends the changes with a token and gives the hub's answer", async () => {
    answerInTurn(accept);
    assert.deepEqual(await publish(`${hub.url}/`, "set", CHANGE, { token: "rsn_t" }), ACCEPTED);
    const [{ headers, body }] = hub.asked;
    assert.equal(headers.authorization, "Bearer rsn_t");
    assert.deepEqual(JSON.parse(body), CHANGE);
  });

  for (const [what, failure] of Object.entries({
    "a 503": answered(503),
    "a 507, as from a hub that is full": answered(507),
    "a 429": answered(429),
    "no answer": hangUp,
    "half an answer": breakOff,
  })) {
    test(`repeats the same request with the same key after ${what}`, async () => {
      answerInTurn(failure, failure, accept);
      await publish(hub.url, "set", [CHANGE]);
      const keys = hub.asked.map(({ headers, body }) => headers["idempotency-key"] + body);
      assert.equal(keys.length, 3);
      assert.equal(new Set(keys).size, 1);
    });
  }

  test("gives every request a key of its own, or the one it is told", async () => {
    answerInTurn(accept);
    for (const options of [{}, {}, { key: "mine" }]) await publish(hub.url, "set", CHANGE, options);
    const keys = hub.asked.map(({ headers }) => headers["idempotency-key"]);
    assert.equal(new Set(keys).size, 3);
    assert.equal(keys[2], "mine");
  });

  test("refuses at once a key that no hub takes", async () => {
    answerInTurn(accept);
    for (const key of ["", null, 1, "schlüssel", "a b", "a\n", "a".repeat(256), "€"]) {
      const options = { key, giveUpSeconds: 0.5 };
      await assert.rejects(publish(hub.url, "set", CHANGE, options), /^Rejected: the key is/);
    }
    assert.equal(hub.asked.length, 0);
  });

  test("has a key also on a page without TLS, which has no randomUUID", async (context) => {
    Object.defineProperty(crypto, "randomUUID", { value: undefined, configurable: true });
    context.after(() => delete crypto.randomUUID);
    answerInTurn(accept);
    await publish(hub.url, "set", CHANGE);
    assert.match(hub.asked[0].headers["idempotency-key"], /^[0-9a-f]{32}$/);
  });

  test("does not repeat what is refused, and names each fault", async () => {
    const faults = [{ index: 0, field: "change", message: "change is 'moved'" }];
    answerInTurn(answered(400, JSON.stringify({ detail: "change 0 is wrong", errors: faults })));
    await assert.rejects(publish(hub.url, "set", CHANGE), (error) => {
      assert.ok(error instanceof Rejected);
      assert.deepEqual([error.status, error.faults], [400, faults]);
      return /change 0 is wrong/.test(error.message);
    });
    assert.equal(hub.asked.length, 1);
  });

  for (const text of ["<html>", "null", "{}"]) {
    test(`says when the address is no hub's, which answers ${text}`, async () => {
      answerInTurn(answered(200, text));
      await assert.rejects(publish(hub.url, "set", CHANGE), /is it a hub's address/);
    });
  }

  test("names the address to which a redirect led it, where nothing was published", async () => {
    answerInTurn(answered(301, "", { Location: "/elsewhere" }));
    hub.answers["/elsewhere"] = answered(405);
    await assert.rejects(publish(hub.url, "set", CHANGE), /redirected to http:.*elsewhere/);
  });

  test("gives up when its time is over, and does not wait for what comes later", async () => {
    answerInTurn(answered(503));
    await assert.rejects(publish(hub.url, "set", CHANGE, { giveUpSeconds: 0.05 }), TryAgain);
    answerInTurn(answered(503, "", { "Retry-After": "3600" }));
    await assert.rejects(publish(hub.url, "set", CHANGE), TryAgain);
  });

  for (const [url, options] of [
    ["example.org"],
    ["ftp://a/"],
    ["http://user:secret@a/"],
    ["http://a/", { token: "rsn_\n1" }],
    ["http://a/", { giveUpSeconds: NaN }],
    ["http://a/", { tokn: "rsn_1" }],
  ]) {
    test(`is refused at once with ${url} and ${inspect(options)}`, async () => {
      const giving = { giveUpSeconds: 0, signal: AbortSignal.timeout(2000), ...options };
      const isClear = (error) => error instanceof Rejected && !/secret|rsn_/.test(error.message);
      await assert.rejects(publish(url, "set", CHANGE, giving), isClear);
    });
  }

  test("gives a long body the time to be sent, and no more than there is", async (context) => {
    const begin = globalThis.setTimeout;
    let waits = [];
    globalThis.setTimeout = (act, wait, ...others) => {
      waits.push(wait);
      return begin(act, wait, ...others);
    };
    context.after(() => {
      globalThis.setTimeout = begin;
    });
    answerInTurn(accept);
    const changes = Array.from({ length: 10_000 }, () => ({ ...CHANGE, hash: "h".repeat(100) }));
    for (const [sent, giveUpSeconds, least, most] of [
      [CHANGE, 60, 20, 21],
      [changes, 60, 55, 60],
      [changes, 0, 20, 20],
    ]) {
      waits = [];
      await publish(hub.url, "set", sent, { giveUpSeconds });
      const wait = waits.find((each) => each >= 20_000);
      assert.ok(wait >= least * 1000 && wait <= most * 1000, `${wait}`);
    }
  });

  test("takes the ws address of a hub, too", async () => {
    answerInTurn(accept);
    const url = hub.url.replace("http", "ws");
    assert.deepEqual(await publish(url, "set", CHANGE, { giveUpSeconds: 0 }), ACCEPTED);
  });

  test("ends when its signal is aborted, while a request waits or before the next", async () => {
    for (const answer of [() => {}, answered(503)]) {
      hub.asked.length = 0;
      answerInTurn(answer);
      const ending = new AbortController();
      const publishing = publish(hub.url, "set", CHANGE, { signal: ending.signal });
      while (!hub.asked.length) await new Promise(setImmediate);
      const reason = new Error("enough");
      ending.abort(reason);
      await assert.rejects(publishing, (error) => error === reason);
    }
  });

  test("publishes framework changes at their own address", async () => {
    hub.answers["/api/sets/set/framework"] = accept;
    assert.deepEqual(
      await publish(hub.url, "set", { ...CHANGE, capability: "resourcelist" }, { framework: true }),
      ACCEPTED,
    );
  });
});
