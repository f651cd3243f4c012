/** A document of this hub as a page; by this tab's token a private one too. Its newest changes come first. */

import { HOME, read } from "./api.js";
import { parseDocument } from "./client/rsnotify.js";
import { ago, counted, digest, foreign, listed, make, number, resource, row, table, tag, the } from "./dom.js";
import { token } from "./token.js";

const ROWS = 200; // of a page
const PAGE = /^#page-(\d+)$/;
const NAMES = { description: "Source Description", capabilitylist: "Capability List" };
const COLUMNS = ["Address", "What", "When"];

const here = new URL(location);
here.searchParams.delete("access_token"); // it goes into no other address
const { problem } = the;
let entries = [];

function show(xml) {
  const found = parseDocument(xml);
  const { root, md: { capability = "", ...md }, links } = found;
  const isTurned = capability.startsWith("changelist") || capability === "change-notification";
  entries = isTurned ? found.entries.reverse() : found.entries;
  const name = `${nameOf(capability)}${root === "sitemapindex" ? " Index" : ""}`;
  document.title = `${name}: ${decodeURI(here.pathname)} – rsnotify`;
  document.querySelector("h1").textContent = name;
  problem.textContent = "";
  const times = Object.entries(md).map(([each, time]) => make.p({}, `${each} `, make.code({}, time), ` (${ago(time)})`));
  const query = new URLSearchParams({ view: "validator", document: here.href.slice(HOME.href.length) });
  const raw = new URL(here);
  raw.searchParams.set("format", "xml");
  the.content.prepend(make.div({ className: "card" }, make.p({}, make.code({}, here.href.split("#")[0])), ...times,
    ...links.map((each) => make.p({}, ...linked(each))),
    make.p({}, `${counted(entries.length, "entry", "entries")}${isTurned && entries.length > 1 ? ", the newest first" : ""} · `,
      make.a({ href: `${HOME.href}?${query}` }, "Validate this"), " · ", make.a({ href: raw.href }, "Raw XML"))));
  the.content.append(make.nav({ id: "pages", className: "row", ariaLabel: "Pages" }));
  turn();
}

/** The page that the address names. */
function turn() {
  const pages = Math.max(1, Math.ceil(entries.length / ROWS));
  const page = Math.min(pages, Math.max(1, Number(PAGE.exec(location.hash)?.[1] ?? 1)));
  const rows = entries.slice((page - 1) * ROWS, page * ROWS).map(rowOf);
  const place = make.div({ id: "entries", className: "card" });
  (the.entries.closest(".scroll") ?? the.entries).replaceWith(place);
  if (!entries.length) {
    place.append(make.p({ className: "help" }, "Nothing is listed here."));
    return;
  }
  const body = table(place, "Entries", ...COLUMNS);
  for (const at of [2, 1]) { // a column in which nothing stands is left out
    if (rows.some(({ cells }) => cells[at].textContent)) continue;
    for (const each of [...body.parentElement.rows, ...rows]) each.cells[at].remove();
  }
  body.append(...rows);
  the.pages.hidden = pages === 1;
  the.pages.replaceChildren(...[[1, "First"], [page - 1, "← Before"], [0, `${number((page - 1) * ROWS + 1)} to ${number((page - 1) * ROWS + rows.length)} of ${number(entries.length)}`],
    [page + 1, "After →"], [pages, "Last"]].map(([to, text]) => (to < 1 || to > pages || to === page ? make.span({}, text) : make.a({ href: `#page-${to}` }, text))));
}

const nameOf = (capability) => NAMES[capability] ?? (capability.replace(/(list|dump)/, " $1").replace(/[-_]/g, " ")
  .replace(/(^| )./g, (each) => each.toUpperCase()) || "Document");

const linked = ({ rel, href }) => [`${rel}: `, resource(href)];

function rowOf({ loc, lastmod, links, md: { change, capability, datetime, hash = "", ...rest } }) {
  const when = datetime || rest.at || rest.from || lastmod;
  const what = change || capability;
  const more = listed(rest);
  const made = row([resource(loc), ...links.map((each) => make.div({}, ...linked(each))),
    make.div({ className: "more", hidden: !hash && !more }, ...hash.split(/\s+/).filter(Boolean).map(digest), foreign(more))],
    what ? tag(what) : "",
    when ? make.time({ dateTime: when, title: when }, `${when.slice(0, 19).replace("T", " ")} · ${ago(when)}`) : "");
  made.cells[0].className = "loc";
  return made;
}

onhashchange = () => {
  if (location.hash && !PAGE.test(location.hash)) return;
  turn();
  the.pages.querySelector("a")?.focus();
  the.content.scrollIntoView();
};

const isSet = !here.pathname.slice(HOME.pathname.length).includes("/"); // whose own view this tab's token opens
const shown = isSet ? () => location.replace(`${HOME}?set=${here.pathname.slice(HOME.pathname.length)}`) : show;

if (!problem.textContent || token()) {
  read(location.href).then(shown).catch(({ message }) => { problem.textContent = message; });
}
