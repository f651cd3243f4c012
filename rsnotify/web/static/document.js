/**
 * A document of this hub as a page. The token of this tab, if there is one, reads what is private.
 */

import { HOME, read } from "./api.js";
import { ago, byId, element, foreign, link, number } from "./dom.js";
import { token } from "./token.js";

const ROWS = 1000; // that are shown
const TERMS = "http://www.openarchives.org/rs/terms/";
const NAMES = { description: "Source Description", capabilitylist: "Capability List" };
const TIMES = ["at", "from", "until", "completed"];

const here = new URL(location);
here.searchParams.delete("access_token"); // it goes into no other address
const childrenOf = (parent, name) => [...parent.children].filter(({ localName }) => localName === name);
const textOf = (parent, name) => childrenOf(parent, name)[0]?.textContent.trim() ?? "";
const ofTerms = (parent, name) => childrenOf(parent, name).filter(({ namespaceURI }) => namespaceURI === TERMS);
const attributes = (md) => Object.fromEntries([...(md?.attributes ?? [])].map(({ name, value }) => [name, value]));

function show(xml) {
  const root = new DOMParser().parseFromString(xml, "application/xml").documentElement;
  if (!["urlset", "sitemapindex"].includes(root.localName)) throw new Error("this is no ResourceSync document");
  const md = attributes(ofTerms(root, "md")[0]);
  const entries = [...root.children].filter(({ localName }) => ["url", "sitemap"].includes(localName));
  const name = `${nameOf(md.capability ?? "")}${root.localName === "sitemapindex" ? " Index" : ""}`;
  document.title = `${name}: ${decodeURI(here.pathname)} – rsnotify`;
  document.querySelector("h1").textContent = name;
  byId("problem").hidden = true;
  byId("content").replaceChildren(head(md, root, entries.length), table(entries.slice(0, ROWS)));
}

const nameOf = (capability) => NAMES[capability]
  ?? (capability.replace(/(list|dump)/, " $1").replace(/-/g, " ").replace(/(^| )./g, (each) => each.toUpperCase()) || "Document");

function head(md, root, count) {
  const query = new URLSearchParams({ view: "validator", document: here.pathname.slice(HOME.pathname.length) + here.search });
  const raw = new URL(here);
  raw.searchParams.set("format", "xml");
  const times = TIMES.filter((each) => md[each]).map((each) => element("p", {}, `${each} `,
    element("code", { textContent: md[each] }), ` (${ago(md[each])})`));
  const links = ofTerms(root, "ln").map((ln) => element("p", {}, `${ln.getAttribute("rel")}: `, link(ln.getAttribute("href"))));
  return element("div", { className: "card" },
    element("p", {}, element("code", { textContent: here.href })), ...times, ...links,
    element("p", {}, `${number(count)} ${count === 1 ? "entry" : "entries"}${count > ROWS ? `, the first ${number(ROWS)} are shown` : ""} · `,
      element("a", { href: `${HOME.href}?${query}`, textContent: "Validate this" }), " · ",
      element("a", { href: raw.href, textContent: "Raw XML" })));
}

function table(entries) {
  const heads = ["Address", "What", "When", "More"].map((textContent) => element("th", { scope: "col", textContent }));
  const rows = [element("tr", {}, ...heads), ...entries.map(row)];
  for (const at of [3, 2, 1]) { // a column in which nothing stands is left out
    if (!rows.slice(1).some(({ cells }) => cells[at].textContent)) for (const each of rows) each.cells[at].remove();
  }
  const made = element("table", {}, element("thead", {}, rows.shift()), element("tbody", {}, ...rows));
  const region = element("div", { className: "card scroll", tabIndex: 0 }, made);
  region.setAttribute("role", "region");
  region.setAttribute("aria-label", "Entries");
  return region;
}

function row(entry) {
  const { change, capability, datetime, ...rest } = attributes(ofTerms(entry, "md")[0]);
  const when = datetime || rest.at || rest.from || textOf(entry, "lastmod");
  const links = ofTerms(entry, "ln").flatMap((ln) => [element("br"), `${ln.getAttribute("rel")}: `, link(ln.getAttribute("href"))]);
  const what = change || capability || "";
  const tag = ["created", "updated", "deleted"].includes(what) ? what : "";
  return element("tr", {}, element("td", { className: "loc" }, link(textOf(entry, "loc")), ...links),
    element("td", {}, ...(what ? [element("span", { className: `tag ${tag}` }, foreign(what))] : [])),
    element("td", {}, element("time", { dateTime: when, title: when, textContent: when ? `${when.slice(0, 19).replace("T", " ")} · ${ago(when)}` : "" })),
    element("td", {}, foreign(Object.entries(rest).map(([name, value]) => `${name} ${value}`).join(", "))));
}

const isRefused = byId("problem").textContent !== "";
byId("problem").hidden = !isRefused;
if (!isRefused || token()) {
  read(location.href).then(show).catch((error) => {
    byId("problem").textContent = error.message;
    byId("problem").hidden = false;
  });
}
