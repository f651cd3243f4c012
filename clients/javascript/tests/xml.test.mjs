// The XML reader: what it reads, what it refuses, in whatever pieces it comes.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { describe, test } from "node:test";

import { DocumentReader, HEAD_LINKS, parseDocument, timedChanges } from "../lib/document.js";
import { Rejected } from "../lib/errors.js";
import { CHILDREN, DEPTH, TOKEN_CHARS, XmlReader } from "../lib/xml.js";

const EXAMPLES = new URL("../../../tests/specification/examples/", import.meta.url);
const NS =
  'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"';
const urlset = (inner, namespaces = NS) => `<urlset ${namespaces}>${inner}</urlset>`;
const loc = (inner) => parseDocument(urlset(`<url><loc>${inner}</loc></url>`)).entries[0].loc;

function inPieces(text, size) {
  const reader = new DocumentReader(new XmlReader());
  const entries = [];
  for (let at = 0; at < text.length; at += size)
    entries.push(...reader.feed(text.slice(at, at + size)));
  entries.push(...reader.close());
  return { ...reader.head, entries };
}

describe("every example of the specification", () => {
  for (const name of readdirSync(EXAMPLES)) {
    test(`${name} reads the same whole and in pieces of any size`, () => {
      const text = readFileSync(new URL(name, EXAMPLES), "utf8");
      const whole = parseDocument(text);
      assert.ok(whole.entries.every((entry) => /^(http|ws)s?:\/\//.test(entry.loc)));
      for (const size of [1, 7, 100]) assert.deepEqual(inPieces(text, size), whole);
    });
  }
});

describe("what it reads", () => {
  const read = {
    entities: ["&lt;&amp;&#65;&#x1F600;&gt;&quot;&apos;", "<&A😀>\"'"],
    CDATA: ["<![CDATA[http://a/?b&c<d>]]>", "http://a/?b&c<d>"],
    "CDATA amid text": ["a<![CDATA[&amp;]]>b&amp;", "a&amp;b&"],
    "comments and instructions amid text": ["a<!-- > --><?x y?>b", "ab"],
    "white space around a value": ["\n  http://a/ \t", "http://a/"],
    "what only looks like an entity in CDATA": ["<![CDATA[&x;]]>", "&x;"],
  };
  for (const [what, [written, value]] of Object.entries(read)) {
    test(what, () => assert.equal(loc(written), value));
  }

  test("namespaces by their URI, whatever their prefix", () => {
    const namespaces =
      'xmlns:s="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:x="http://www.openarchives.org/rs/terms/"';
    const text = `<s:urlset ${namespaces}><x:md until="1"/><s:url><s:loc>a</s:loc><x:md change="updated"/></s:url></s:urlset>`;
    const { md, entries } = parseDocument(text);
    assert.deepEqual([md.until, entries[0].loc, entries[0].md.change], ["1", "a", "updated"]);
  });

  test("a prefix that another namespace has is another one", () => {
    const other = '<url><loc>a</loc><rs:md xmlns:rs="urn:other" change="updated"/></url>';
    assert.equal(parseDocument(urlset(other)).entries[0].md.change, undefined);
  });

  test("attributes with > and either quote in them", () => {
    const { entries } = parseDocument(
      urlset(`<url><loc>a</loc><rs:md hash='a>"b' type="c'>d"/></url>`),
    );
    assert.deepEqual(entries[0].md, { hash: 'a>"b', type: "c'>d" });
  });

  test("numbers as numbers, and what is none as nothing", () => {
    const { entries } = parseDocument(
      urlset('<url><loc>a</loc><rs:md length="8876" pri="x"/></url>'),
    );
    assert.deepEqual(entries[0].md, { length: 8876, pri: undefined });
  });

  test("a byte order mark and a declaration of UTF-8", () => {
    assert.equal(
      parseDocument(`\ufeff<?xml version="1.0" encoding="utf-8"?>${urlset("")}`).root,
      "urlset",
    );
  });

  test("an entry before the document has ended", () => {
    const reader = new DocumentReader(new XmlReader());
    const [entry] = reader.feed(`<urlset ${NS}><rs:md from="1"/><url><loc>a</loc></url><url>`);
    assert.deepEqual([entry.loc, reader.head.md.from], ["a", "1"]);
  });

  test("an element with a name of our own fields changes none of them", () => {
    const { entries } = parseDocument(urlset("<url><loc>a</loc><links>b</links><md>c</md></url>"));
    assert.deepEqual(entries, [{ md: {}, links: [], loc: "a" }]);
  });

  test("a name of an object's own in an attribute changes no object", () => {
    parseDocument(urlset('<url><loc>a</loc><rs:md __proto__="x" constructor="y"/></url>'));
    assert.equal({}.x, undefined);
  });
});

describe("what it refuses", () => {
  const refused = {
    "a DOCTYPE": `<!DOCTYPE urlset>${urlset("")}`,
    "an entity bomb": `<!DOCTYPE x [<!ENTITY a "b">]>${urlset("&a;")}`,
    "an entity of its own": urlset("<url><loc>&a;</loc></url>"),
    "an & alone": urlset("<url><loc>a & b</loc></url>"),
    "a character that is none": urlset("<url><loc>&#0;</loc></url>"),
    "half of a surrogate pair": urlset("<url><loc>&#xD800;</loc></url>"),
    "a character beyond Unicode": urlset("<url><loc>&#x110000;</loc></url>"),
    "a reference with a capital X": urlset("<url><loc>&#X41;</loc></url>"),
    "a root that objects have": "<constructor/>",
    "a control character": urlset("\u0001"),
    "tags that cross": urlset("<url><loc></url></loc>"),
    "an end without a beginning": "</urlset>",
    "a second root": urlset("") + urlset(""),
    "text after the root": `${urlset("")}x`,
    "a document that breaks off": urlset("").slice(0, -3),
    "a tag that breaks off": `${urlset("")}<url`,
    nothing: "",
    "no XML at all": "hello",
    "an attribute twice": urlset('<rs:md a="1" a="2"/>'),
    "an attribute without quotes": urlset("<rs:md a=1/>"),
    "a < in an attribute": urlset('<rs:md a="<"/>'),
    "a prefix that is not declared": urlset("<x:md/>"),
    "a name that is none": urlset("<1/>"),
    "a text with ]]>": urlset("]]>"),
    "another encoding": `<?xml version="1.0" encoding="utf-16"?>${urlset("")}`,
    "another root": "<html/>",
    "a root of no namespace": "<urlset/>",
  };
  for (const [what, text] of Object.entries(refused)) {
    test(`${what}, whole and in pieces`, () => {
      assert.throws(() => inPieces(text, 1e9), Rejected);
      assert.throws(() => inPieces(text, 1), Rejected);
    });
  }
});

describe("its bounds", () => {
  const bounds = {
    "a text": [TOKEN_CHARS, (size) => urlset(`<url><loc>${"a".repeat(size)}</loc></url>`)],
    "a tag": [
      TOKEN_CHARS - 2,
      (size) => urlset(`<rs:md a="${"a".repeat(size - 'rs:md a=""/'.length)}"/>`),
    ],
    "a comment": [TOKEN_CHARS, (size) => urlset(`<!--${"a".repeat(size)}-->`)],
    "a depth": [DEPTH - 1, (size) => urlset("<a>".repeat(size) + "</a>".repeat(size))],
    "the elements of an entry": [
      CHILDREN,
      (size) => urlset(`<url>${"<rs:ln/>".repeat(size)}</url>`),
    ],
  };
  for (const [what, [most, made]] of Object.entries(bounds)) {
    test(`${what} may have ${most} and not one more`, () => {
      inPieces(made(most), 1e9);
      assert.throws(() => inPieces(made(most + 1), 1e9), Rejected);
    });
  }

  test("a tag or text without an end is refused before it has taken memory", () => {
    for (const beginning of ["<urlset ", `<urlset ${NS}><url><loc>`, `<urlset ${NS}><!--`, "<?"]) {
      const reader = new XmlReader();
      reader.feed(beginning);
      let fed = 0;
      assert.throws(() => {
        for (; fed < 10; fed++) reader.feed("a".repeat(TOKEN_CHARS / 4));
      }, Rejected);
      assert.ok(fed <= 5);
    }
  });
});

test("entries without an address are skipped, and that is said", (context) => {
  const warn = context.mock.method(console, "warn", () => {});
  const url = "<url><loc>http://a/1</loc></url>";
  const urlset = (entries) =>
    `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">${entries}</urlset>`;
  assert.equal(parseDocument(urlset(url)).entries.length, 1);
  assert.equal(warn.mock.callCount(), 0);
  assert.equal(parseDocument(urlset(`<url/>${url}<url><loc> </loc></url>`)).entries.length, 1);
  assert.deepEqual(warn.mock.calls[0].arguments, ["skipped: it has entries without <loc>: 2"]);
});

test("links of a head beyond those that are kept are counted, and that is said", (context) => {
  const warn = context.mock.method(console, "warn", () => {});
  const headOf = (count) => parseDocument(urlset('<rs:ln rel="x" href="y"/>'.repeat(count)));
  assert.equal(headOf(HEAD_LINKS).links.length, HEAD_LINKS);
  assert.equal(warn.mock.callCount(), 0);
  assert.equal(headOf(HEAD_LINKS + 2).links.length, HEAD_LINKS);
  assert.deepEqual(warn.mock.calls[0].arguments, ["skipped: links of its head beyond 1000: 2"]);
});

test("what is no change and a datetime that cannot be read are skipped, and that is said", (context) => {
  const warn = context.mock.method(console, "warn", () => {});
  const entry = (name, change, datetime) => ({ loc: name, md: { change, datetime }, links: [] });
  const [begin, when] = ["2026-11-20T00:00:00.000000Z", "2026-11-20T21:34:00.123456Z"];
  const right = [entry("a", "created", when), entry("b", "deleted")];
  assert.equal(timedChanges(right, begin).length, 2);
  assert.equal(warn.mock.callCount(), 0);
  const wrong = [entry("c", "renamed", when), entry("d", undefined), entry("e", "updated", "yesterday")];
  const found = timedChanges([...right, ...wrong], begin);
  const told = found.map(({ position, change }) => [position, change.loc, change.datetime]);
  assert.deepEqual(told, [[when, "a", when], [when, "b", undefined], [when, "e", undefined]]);
  assert.deepEqual(warn.mock.calls[0].arguments, ["skipped: c: change is renamed; 3 in all"]);
});
