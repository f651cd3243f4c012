/** One change of the set, at an address of its own: when, what, its digests, and how a program gets it. */

import { address, read } from "./api.js";
import { positionOf } from "./client/lib/position.js";
import { parseDocument } from "./client/rsnotify.js";
import { entryIn } from "./code.js";
import { copyable, make, resource, say, tag, the, toClipboard } from "./dom.js";
import { showFacts } from "./facts.js";
import { asked, set } from "./here.js";

const GONE = 410;
const given = asked.get("change").trim();
const position = positionOf(given) ?? given;
const answer = the["change-answer"];

const listOf = (question) => address(`${set.name}/changelist.xml?${new URLSearchParams({ ...question, limit: 1 })}`).replaceAll("%3A", ":");
const link = (question, ...text) => make.a({ href: `?${new URLSearchParams({ set: set.name, ...question })}` }, ...text);

the["of-set"].href = `?set=${set.name}`;
the["share-change"].onclick = ({ target }) => toClipboard(location.href, target);
show().catch(({ status, message }) => say(answer, `${status === GONE ? "This change is no longer kept" : "It cannot be shown"}: ${message}.`, true));

async function show() {
  const [xml, after] = await Promise.all([read(listOf({ until: position })), next()]);
  const { md: { from }, links, entries: [change] } = parseDocument(xml);
  if (change?.md.datetime !== position) {
    answer.replaceChildren(`${set.name} has no change at ${given}. `, ...(change ? [link({ change: change.md.datetime }, "The last one before")] : []));
    return;
  }
  document.title = `${change.md.change} ${change.loc} – rsnotify`;
  the["change-title"].replaceChildren(tag(change.md.change), " ", resource(change.loc));
  const { lastmod, md: { change: _, ...said } } = change;
  showFacts(the["change-facts"], { ...said, lastmod, links: change.links });
  the["change-forms"].append(...await forms(xml));
  const before = links.some(({ rel }) => rel === "prev") && from;
  the.beside.append(...beside(before, after));
  answer.hidden = true;
  the["one-change"].hidden = false;
}

async function forms(xml) {
  const inJson = listOf({ until: position, format: "json" });
  const { changes: [change] } = JSON.parse(await read(inJson));
  const bearer = set.private ? '-H "Authorization: Bearer $RSNOTIFY_TOKEN" ' : "";
  return [
    copyable("curl", `curl ${bearer}'${inJson}'`, "shell"),
    copyable("JSON", JSON.stringify(change, null, 2), "json"),
    copyable("XML", entryIn(xml), "xml"),
  ];
}

/** The position of the change that follows, if there is one by now. */
async function next() {
  const { entries: [change] } = parseDocument(await read(listOf({ from: position })));
  return change?.md.datetime;
}

const beside = (before, after) => [
  before ? link({ change: before }, "← The change before") : "The first that is kept",
  after ? link({ change: after }, "The change after →") : "The newest there is",
  link({ from: position }, "All that followed"),
];
