// What the page decides without the page: how a document is shown as text.

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { entryIn } from "../../rsnotify/web/static/xml.js";

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
