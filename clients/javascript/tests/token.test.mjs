// A token that a function gives: when it is asked, and what it may answer.

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { openChannel } from "../lib/channel.js";
import { Rejected, TryAgain } from "../lib/errors.js";
import { endOf, HeldToken } from "../lib/token.js";
import { Web } from "../lib/web.js";
import { follow, publish } from "../rsnotify.js";
import { answered, serve } from "./servers.mjs";

const CHANGE = { loc: "http://example.com/1", change: "updated" };
const ACCEPTED = { accepted: 1, from: "a", until: "b" };

function jwt(seconds, id = 0) {
  const claims = { exp: Date.now() / 1000 + seconds, id };
  return `e30.${Buffer.from(JSON.stringify(claims)).toString("base64url")}.c2ln`;
}

/** Counts how often it was asked; the n-th answer is what `give(n)` gives. */
function counted(give) {
  const ask = async () => give(++ask.count);
  ask.count = 0;
  return ask;
}

async function until(fact) {
  while (!(await fact())) await new Promise((resolve) => setTimeout(resolve, 5));
}

describe("a token", () => {
  test("that cannot be had for a WebSocket leaves no event stream open", async () => {
    const hub = await serve({});
    let closed;
    hub.answers["/channel"] = (_, response) => {
      closed = new Promise((resolve) => response.on("close", () => resolve("closed")));
      response.writeHead(200, { "Content-Type": "text/event-stream" }).flushHeaders();
    };
    const url = `${hub.url.replace("http", "ws")}/channel`;
    const web = new Web({ url, token: "secret" });
    web.socket = () => Promise.reject(new TryAgain("the token function has failed"));
    const options = { WebSocket: class {} };
    await assert.rejects(openChannel(web, url, () => undefined, options), TryAgain);
    const late = new Promise((resolve) => setTimeout(resolve, 2000, "late"));
    const ended = await Promise.race([closed, late]);
    await hub.close();
    assert.equal(ended, "closed");
  });

  test("without an end is asked for once, by all together", async () => {
    const ask = counted((number) => `opaque-${number}`);
    const held = new HeldToken(ask);
    assert.equal(ask.count, 0);
    const shown = await Promise.all(Array.from({ length: 40 }, () => held.shown()));
    assert.deepEqual(new Set(shown), new Set(["opaque-1"]));
    const others = await Promise.all(Array.from({ length: 40 }, () => held.hasAnother("opaque-1")));
    assert.deepEqual(new Set(others), new Set([true]));
    assert.equal(ask.count, 2);
  });

  test("is asked for before a JWT ends, and nobody waits for the next one", async () => {
    let allow;
    const allowed = new Promise((resolve) => (allow = resolve));
    const ask = counted(async (number) => {
      if (number > 1) await allowed;
      return jwt(number > 1 ? 600 : 2, number);
    });
    const held = new HeldToken(ask);
    const first = await held.shown();
    await until(async () => (await held.shown()) === first && ask.count === 2);
    allow();
    await until(async () => (await held.shown()) !== first);
    assert.equal(ask.count, 2);
  });

  test("that has ended by a wrong clock is shown until it is refused", async () => {
    const ask = counted((number) => jwt(-3600, number));
    const held = new HeldToken(ask);
    const shown = await held.shown();
    assert.equal(await held.shown(), shown);
    assert.equal(ask.count, 1);
    assert.equal(await held.hasAnother(shown), true);
  });

  test("that is no text, or cannot be sent, is an error of whoever gave it", async () => {
    for (const [given, said] of [
      [undefined, "what the token function gave is of type undefined: a token is text"],
      [new Uint8Array(2), "what the token function gave is of type object: a token is text"],
      ["", "what the token function gave is empty"],
      ["a\nb", "what the token function gave has a line break"],
    ]) {
      const wrong = ({ name, message }) => name === "Rejected" && message.startsWith(said);
      await assert.rejects(new HeldToken(() => given).shown(), wrong);
    }
    assert.throws(() => new HeldToken(5), { message: "the token is of type number: a token is text" });
  });

  test("of a function that fails is TryAgain, without a secret, and not asked for at once", async () => {
    const ask = counted(() => {
      throw new Error("no route to https://a/?access_token=hidden");
    });
    const held = new HeldToken(ask);
    for (let times = 0; times < 50; times++) {
      const failed = ({ name, message }) => name === "TryAgain" && !message.includes("hidden");
      await assert.rejects(held.shown(), failed);
    }
    assert.ok(ask.count <= 2);
  });

  test("is waited for no longer than its caller waits", async () => {
    const leaving = new AbortController();
    const shown = new HeldToken(() => new Promise(() => {})).shown(leaving.signal);
    leaving.abort();
    await assert.rejects(shown, TryAgain);
    const found = follow("http://127.0.0.1:1/", {
      token: () => new Promise(() => {}),
      signal: AbortSignal.timeout(10),
    });
    assert.deepEqual(await found.next(), { done: true, value: undefined });
  });

  for (const text of ["rsn_abc", "a.b.c", "e30.W10.c2ln", "e30.eyJleHAiOnRydWV9.c2ln", "e30.*.c"]) {
    test(`such as ${text} does not say when it ends`, () => assert.ok(Number.isNaN(endOf(text))));
  }
});

describe("a refused token", () => {
  /** Refuses these tokens; what was posted with which. */
  async function hub(context, ...refused) {
    const source = await serve({
      "/api/sets/a/changes": ({ headers }, response) => {
        const isRefused = refused.includes(headers.authorization.slice("Bearer ".length));
        const status = isRefused ? 401 : 201;
        const body = isRefused ? { detail: "the token has expired" } : ACCEPTED;
        answered(status, JSON.stringify(body))({}, response);
      },
    });
    context.after(source.close);
    return source;
  }

  test("is asked for once more, and the request repeated with the same key", async (context) => {
    const { url, asked } = await hub(context, "opaque-1");
    const token = counted((number) => `opaque-${number}`);
    assert.deepEqual(await publish(url, "a", CHANGE, { token, key: "k" }), ACCEPTED);
    assert.deepEqual(
      asked.map(({ headers, body }) => [
        headers.authorization,
        headers["idempotency-key"],
        JSON.parse(body).loc,
      ]),
      [1, 2].map((number) => [`Bearer opaque-${number}`, "k", CHANGE.loc]),
    );
  });

  for (const answers of [["one"], ["one", "two"]]) {
    test(`is the error if the next one is ${answers.at(-1)}`, async (context) => {
      const { url, asked } = await hub(context, ...answers);
      const token = counted((number) => answers[(number - 1) % answers.length]);
      const expired = ({ name, message }) => name === "Rejected" && /has expired/.test(message);
      await assert.rejects(publish(url, "a", CHANGE, { token }), expired);
      assert.equal(asked.length, answers.length);
      assert.equal(token.count, 2);
    });
  }

  test("of a service that is away for a moment is asked for again by who publishes", async (context) => {
    const { url } = await hub(context);
    const token = counted((number) => {
      if (number === 1) throw new Error("away");
      return "opaque";
    });
    assert.deepEqual(await publish(url, "a", CHANGE, { token }), ACCEPTED);
    await assert.rejects(publish(url, "a", CHANGE, { token: () => null }), Rejected);
  });
});
