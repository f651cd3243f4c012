/** A document of this hub as a page; by this tab's token a private one too. */

import { HOME, read } from "./api.js";
import { parseDocument } from "./client/rsnotify.js";
import { ago, counted, foreign, link, listed, make, number, row, table, tag, the } from "./dom.js";
import { token } from "./token.js";

const ROWS = 1000; // shown
const NAMES = { description: "Source Description", capabilitylist: "Capability List" };

const here = new URL(location);
here.searchParams.delete("access_token"); // it goes into no other address
const { problem } = the;

function show(xml) {
  const { root, md: { capability = "", ...md }, links, entries } = parseDocument(xml);
  const name = `${nameOf(capability)}${root === "sitemapindex" ? " Index" : ""}`;
  document.title = `${name}: ${decodeURI(here.pathname)} – rsnotify`;
  document.querySelector("h1").textContent = name;
  problem.textContent = "";
  const times = Object.entries(md).map(([each, time]) => make.p({}, `${each} `, make.code({}, time), ` (${ago(time)})`));
  const query = new URLSearchParams({ view: "validator", document: here.href.slice(HOME.href.length) });
  const raw = new URL(here);
  raw.searchParams.set("format", "xml");
  the.content.prepend(make.div({ className: "card" }, make.p({}, make.code({}, here.href)), ...times,
    ...links.map((each) => make.p({}, ...linked(each))),
    make.p({}, `${counted(entries.length, "entry", "entries")}${entries.length > ROWS ? `, the first ${number(ROWS)} are shown` : ""} · `,
      make.a({ href: `${HOME.href}?${query}` }, "Validate this"), " · ", make.a({ href: raw.href }, "Raw XML"))));
  const rows = entries.slice(0, ROWS).map(rowOf);
  const body = table(the.entries, "Entries", "Address", "What", "When", "More");
  for (const at of [3, 2, 1]) { // a column in which nothing stands is left out
    if (rows.some(({ cells }) => cells[at].textContent)) continue;
    for (const each of [...body.parentElement.rows, ...rows]) each.cells[at].remove();
  }
  body.append(...rows);
}

const nameOf = (capability) => NAMES[capability] ?? (capability.replace(/(list|dump)/, " $1").replace(/[-_]/g, " ")
  .replace(/(^| )./g, (each) => each.toUpperCase()) || "Document");

const linked = ({ rel, href }) => [`${rel}: `, link(href)];

function rowOf({ loc, lastmod, links, md: { change, capability, datetime, ...rest } }) {
  const when = datetime || rest.at || rest.from || lastmod;
  const what = change || capability;
  const made = row([link(loc), ...links.flatMap((each) => [make.br(), ...linked(each)])],
    what ? tag(what) : "",
    when ? make.time({ dateTime: when, title: when }, `${when.slice(0, 19).replace("T", " ")} · ${ago(when)}`) : "",
    foreign(listed(rest)));
  made.cells[0].className = "loc";
  return made;
}

if (!problem.textContent || token()) {
  read(location.href).then(show).catch(({ message }) => { problem.textContent = message; });
}
