// What the page decides without the page: how a document is shown as text, what a line of time shows.

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { entryIn, partsOf } from "../../rsnotify/web/static/code.js";
import {
  barsOf,
  between,
  endFor,
  faultOf,
  hoursOf,
  minuteIn,
  minuteOf,
  momentOf,
  moved,
  pathOf,
  stepFor,
  stretchOf,
  writtenOf,
} from "../../rsnotify/web/static/minutes.js";
import { placesOf } from "../../rsnotify/web/static/places.js";
import { programsOf } from "../../rsnotify/web/static/programs.js";
import { chosen } from "../../rsnotify/web/static/tree.js";

describe("the entry of a list", () => {
  const table = [
    ["<urlset><url><loc>a</loc></url></urlset>", "<url>\n  <loc>a</loc>\n</url>"],
    ["<url>\n<loc>a</loc>\n  <rs:md x='1'/></url>", "<url>\n  <loc>a</loc>\n  <rs:md x='1'/>\n</url>"],
    ["<url><o:a><o:b/></o:a></url><url/>", "<url>\n  <o:a>\n    <o:b/>\n  </o:a>\n</url>"],
    ["<url><o:a>x/</o:a></url>", "<url>\n  <o:a>x/</o:a>\n</url>"],
    ["<urlset></urlset>", ""],
  ];
  for (const [xml, shown] of table) test(`of ${xml}`, () => assert.equal(entryIn(xml), shown));
});

const NOON = minuteOf("2026-11-20T12:00:00.000000Z");

describe("a minute", () => {
  const table = [
    ["2026-11-20T12:00:00.000000Z", NOON],
    ["2026-11-20T12:00:00.000001Z", NOON + 1],
    ["2026-11-20T12:00:59.999999Z", NOON + 1],
    ["2026-11-20T12:01:00.000000Z", NOON + 1],
  ];
  for (const [position, minute] of table) {
    test(`of ${position} ends where a stretch with it may end`, () => assert.equal(minuteOf(position), minute));
  }
  test("has a moment, which is its end", () => assert.equal(momentOf(NOON), "2026-11-20T12:00:00Z"));
});

describe("a minute that is written", () => {
  test("by the clock of this place is read as it was", () => assert.equal(minuteIn(writtenOf(NOON)), NOON));
  test("has a date and a time", () => assert.match(writtenOf(NOON), /^2026-11-2\dT\d\d:\d\d$/));
  test("not at all is none", () => assert.equal(minuteIn(""), NaN));
});

describe("a stretch that is written", () => {
  const table = [
    [[NaN, NOON], 0],
    [[NOON - 60, NaN], 1],
    [[NOON, NOON], 0],
    [[NOON - 1, NOON - 1], 1],
    [[NOON - 1, NOON], undefined],
    [[NOON - 1, NOON + 1], 1],
  ];
  for (const [stretch, edge] of table) {
    test(`${stretch}, at noon: the edge to mend is ${edge}`, () => assert.equal(faultOf(stretch, NOON)?.[0], edge));
  }
});

describe("from one position to another", () => {
  const first = "2026-11-20T12:00:00.999999Z";
  for (const [second, expected] of [[first, 0], ["2026-11-20T12:00:01.000000Z", 0.001], ["2026-11-20T12:00:00.999000Z", -0.999]]) {
    test(`${second} it is ${expected} ms`, () => assert.equal(between(first, second), expected));
  }
});

describe("a line of time", () => {
  for (const [pixels, step] of [[4320, 1], [4319, 2], [864, 5], [863, 10], [288, 15], [72, 60], [0, 60]]) {
    test(`of ${pixels} pixels has bars of ${step} minutes`, () => assert.equal(stepFor(pixels), step));
  }
  test("ends where a bar ends", () => {
    assert.deepEqual([NOON, NOON + 1].map((minute) => endFor(minute, 30)), [NOON, NOON + 30]);
  });
  test("counts what lies in its day", () => {
    const minutes = new Map([[NOON - 1440, 7], [NOON - 1439, 1], [NOON - 30, 2], [NOON - 29, 3], [NOON, 4], [NOON + 1, 7]]);
    const bars = barsOf(minutes, NOON, 30);
    assert.deepEqual([bars.length, bars[0], bars[46], bars[47]], [48, 1, 2, 7]);
  });
  test("shows a few beside many, and nothing where there is none", () => {
    assert.equal(pathOf([0, 100, 1, 0, 25]), "M1,1v-1.000h.75V1zM2,1v-0.100h.75V1zM4,1v-0.500h.75V1z");
    assert.equal(pathOf([0, 0]), "");
  });
  test("has a word every few hours of this place, and names the day at midnight", () => {
    const found = hoursOf(NOON, 6);
    assert.ok(found.length === 3 || found.length === 4, found.length);
    assert.ok(found.at(-1)[0] <= NOON - 180, "there is room for its text");
    for (const [minute, text] of found) {
      const time = new Date(minute * 60_000);
      assert.equal(time.getHours() % 6, 0);
      assert.match(text, time.getHours() ? /^\d\d:00$/ : /^20 Nov$/);
    }
  });
});

describe("a stretch", () => {
  const drawn = [
    [[-61, -40], [-90, -30]],
    [[-40, -61], [-90, -30]],
    [[-60, -60], [-60, -30]],
    [[0, 0], [-30, 0]],
    [[-10, 500], [-30, 0]],
    [[-9999, -1440], [-1440, -1410]],
  ];
  for (const [[one, other], [from, until]] of drawn) {
    test(`from ${one} to ${other} is of whole bars of the day`, () => {
      assert.deepEqual(stretchOf(NOON + one, NOON + other, NOON, 30), [NOON + from, NOON + until]);
    });
  }
  const keys = [
    [0, "ArrowRight", [-90, -60]],
    [0, "PageUp", [-90, -60]],
    [0, "ArrowLeft", [-150, -60]],
    [0, "Home", [-1440, -60]],
    [0, "End", [-90, -60]],
    [1, "ArrowUp", [-120, -30]],
    [1, "PageUp", [-120, 0]],
    [1, "ArrowDown", [-120, -90]],
    [1, "Home", [-120, -90]],
    [1, "End", [-120, 0]],
  ];
  for (const [edge, key, [from, until]] of keys) {
    test(`whose edge ${edge} is moved by ${key} keeps a bar, and the day`, () => {
      assert.deepEqual(moved([NOON - 120, NOON - 60], edge, key, NOON, 30), [NOON + from, NOON + until]);
    });
  }
  test("is moved by no other key", () => assert.equal(moved([0, 30], 0, "Tab", 30, 30), undefined));
});

describe("code", () => {
  const table = [
    ["shell", 'curl -N "a \\" b" $T # c', ["", "word:-N", "", 'string:"a \\" b"', "", "name:$T", "", "comment:# c"]],
    ["shell", "echo a#b", [""]],
    ["javascript", "for (const a of 'b') // c", ["word:for", "", "word:const", "", "word:of", "", "string:'b'", "", "comment:// c"]],
    ["python", "with x(\"forty\") as y:", ["word:with", "", 'string:"forty"', "", "word:as", ""]],
    ["json", '{"a": "b", "c": -1.5}', ["", 'name:"a"', "", 'string:"b"', "", 'name:"c"', "", "word:-1.5", ""]],
    ["xml", "<rs:md a='1'/>x", ["word:<rs:md", "", "name:a", "", "string:'1'", "word:/>", ""]],
    ["xml", "", []],
  ];
  for (const [language, text, kinds] of table) {
    test(`of ${language} has parts that are told apart: ${text}`, () => {
      const parts = partsOf(text, language);
      assert.equal(parts.map(([, part]) => part).join(""), text);
      assert.deepEqual(parts.map(([kind, part]) => (kind ? `${kind}:${part}` : "")), kinds);
    });
  }
});

describe("a program", () => {
  const place = { hub: "http://h", set: "s", channel: "http://h/c", list: "http://h/l", sample: "http://h/i" };
  const texts = (more) => programsOf({ ...place, ...more }).map(([, , text]) => text);
  test("has a token that is filled in as its language writes it", () => {
    const all = texts({ secret: "a'b\"c", isPrivate: true }).join("\n");
    assert.ok(all.includes("export RSNOTIFY_TOKEN='a'\\''b\"c'\n"));
    assert.ok(all.includes('token: "a\'b\\"c"'));
    assert.ok(all.includes('Publisher("http://h", "a\'b\\"c")'));
    assert.ok(!all.includes("YOUR TOKEN"));
  });
  test("that reads has none where everybody may read", () => {
    const reading = programsOf({ ...place, secret: "SECRET" }).filter(([, what]) => what !== "publish");
    for (const [, , text] of reading) assert.ok(!text.includes("SECRET"), text);
  });
  test("has none but its place unless one is filled in", () => {
    for (const text of texts({})) assert.doesNotMatch(text, /YOUR TOKEN|export/);
  });
});

const DOCUMENT = `<?xml version="1.0"?>
<urlset xmlns:o="o"><!-- <o:ln/> -->
<o:md capability="changelist"/><o:ln rel="up"
  href="a"/><o:ln rel='index' href="b"/>
<url><loc>a</loc><o:md change="x>y"/></url><url/>
<url><o:ln rel="up"/></url></urlset>`;

describe("a place of a violation", () => {
  const table = [
    ["/urlset", "2:1", '<urlset xmlns:o="o">'],
    ["/urlset/rs:md/@capability", "3:7", 'capability="changelist"'],
    ["/urlset/rs:md/@from", "3:1", '<o:md capability="changelist"/>'],
    ["/urlset/rs:ln[@rel='index']", "4:13", "<o:ln rel='index' href=\"b\"/>"],
    ["/urlset/rs:ln[1]/@href", "4:3", 'href="a"'],
    ["/urlset/url[1]/rs:md/@change", "5:24", 'change="x>y"'],
    ["/urlset/url[2]/loc", "5:44", "<url/>"],
    ["/urlset/url[3]/rs:ln[@rel='up']", "6:6", '<o:ln rel="up"/>'],
    ["/urlset/url[9]/rs:md/@change", "2:1", '<urlset xmlns:o="o">'],
    ["/", undefined, undefined, "nothing is known"],
    ["/", "3:8", '<o:md capability="changelist"/><o:ln rel="up"', "url line 2 and urlset, line 3, column 8"],
    ["/", undefined, undefined, "line 99"],
  ];
  for (const [path, place, marked, message = ""] of table) {
    test(`of ${path} ${message} is ${place}`, () => {
      const [found] = placesOf(DOCUMENT, [{ path, message }]);
      assert.equal(found && `${found.line}:${found.column}`, place);
      assert.equal(found && DOCUMENT.slice(found.begin, found.end), marked);
    });
  }
  test("is found in what breaks off, and in nothing", () => {
    assert.equal(placesOf("<a><b", [{ path: "/a/b", message: "" }])[0].end, 3);
    assert.deepEqual(placesOf("</a>", [{ path: "/a", message: "" }]), [undefined]);
  });
});

describe("of a document the tree of the Source follows", () => {
  const parts = [1, 2, 3].map((number) => `http://hub/.well-known/resourcesync/${number}.xml`);
  const sets = ["a", "ab", "b"].map((name) => `http://hub/${name}/capabilitylist.xml`);
  const many = Array.from({ length: 61 }, (_, at) => `http://hub/s${at}/capabilitylist.xml`);
  const [description, index] = [{ root: "urlset", capability: "description" }, { root: "sitemapindex", capability: "description" }];
  const set = { below: "http://hub/a/", above: parts[1] };
  const table = [
    ["a description: the set", description, sets, set, [sets[0]]],
    ["a description that does not name the set: nothing", description, sets, { below: "http://hub/c/" }, []],
    ["a description, no set being chosen: as many as one can read", description, many, undefined, many.slice(0, 60)],
    ["an index of descriptions: that which names the set", index, parts, set, [parts[1]]],
    ["an index without the description above the set: nothing", index, parts, { ...set, above: undefined }, []],
    ["an index of descriptions, no set being chosen: the last", index, many, undefined, many.slice(-5)],
    ["a Capability List: all", { root: "urlset", capability: "capabilitylist" }, sets, set, sets],
    ["an index of lists: the newest", { root: "sitemapindex", capability: "changelist" }, many, set, many.slice(-5)],
  ];
  for (const [title, head, locs, of, expected] of table) {
    test(title, () => assert.deepEqual(chosen(locs.map((loc) => ({ loc })), head, of).map(({ loc }) => loc), expected));
  }
});
