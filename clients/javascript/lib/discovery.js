// From any address that a person might have to what a Source offers.
//
// A document is known by what it says of itself, not by its name. The ways to find one are tried in
// the order of the specification: links, then the well-known URI, then robots.txt. A document, or a
// set of a hub, that is not there leads nowhere: what its site has besides is another set. What is
// found is decided by pure functions; `discover` only fetches.

import { linkIn, DocumentReader } from "./document.js";
import { Rejected } from "./errors.js";
import { detailIn, httpTwin, isSocket, PAGE_CHARS, refused } from "./web.js";

export const WELL_KNOWN = "/.well-known/resourcesync";
export const STEPS = 8; // from an address to a Capability List; a longer way goes in a circle
const DESCRIPTIONS = ["description", "resourcesync"]; // the latter until 0.9
const UP = ["up", "resourcesync", "top"]; // the second until 0.9, the last in the draft of 2013
export const SETS_ASKED = 100; // of a hub, for the one with a topic
const MANY = 1000; // sets: if there are more, nobody has to know how many
const DOCUMENT = /\.xml(\.gz)?\/*$/i;
const PROBLEM = "application/problem+json";
const OFFERS = {
  changelist: "changelist",
  "changelist-archive": "archive",
  resourcelist: "resourcelist",
};

// Deciding ----------------------------------------------------------------------------------------

/** The first target of a relation in a `Link` header. */
export function linked(header, relation) {
  for (const [, target, parameters] of (header ?? "")
    .slice(0, 8192)
    .matchAll(/<([^>]*)>([^<]*)/g)) {
    const rel = /;\s*rel\s*=\s*(?:"([^"]*)"|([^\s;,"]+))/i.exec(parameters);
    if (words(rel?.[1] ?? rel?.[2]).includes(relation)) return target;
  }
  return undefined;
}

/** The target of a `<link>` of this relation. */
export function linkedInHtml(text, relation = "resourcesync") {
  for (const [tag] of text.matchAll(/<link\s[^<>]{1,4000}>/gi)) {
    if (words(attribute(tag, "rel")).includes(relation)) return attribute(tag, "href");
  }
  return undefined;
}

function attribute(tag, name) {
  const found = new RegExp(`\\s${name}\\s*=\\s*(?:"([^"]*)"|'([^']*)'|([^\\s"'>]+))`, "i").exec(
    tag,
  );
  return (found?.[1] ?? found?.[2] ?? found?.[3])?.replaceAll("&amp;", "&");
}

function words(text) {
  return (text ?? "").toLowerCase().split(/\s+/);
}

/** What `Sitemap:` lines name, each once. */
export function sitemapsOf(robots) {
  const lines = robots.matchAll(/^[ \t]*sitemap[ \t]*:[ \t]*(\S+)/gim);
  return [...new Set(Array.from(lines, ([, url]) => url))];
}

/** What a Capability List offers: 1.0.1 with alternates, 0.8 with `ws://` addresses, or 1.1. */
export function offered(url, entries) {
  const found = { url };
  for (const { loc, md, links } of entries) {
    const at = resolved(loc, url);
    if (Object.hasOwn(OFFERS, md.capability)) found[OFFERS[md.capability]] ??= at;
    if (md.capability === "change-notification") addChannel(found, at, links, url);
  }
  return found;
}

function addChannel(found, at, links, url) {
  if (isSocket(at)) {
    found.socket ??= at;
    return;
  }
  found.topic ??= at;
  const others = links
    .filter(({ rel }) => rel === "alternate")
    .map(({ href }) => resolved(href, url));
  found.socket ??= others.find(isSocket);
}

function resolved(reference, base) {
  return URL.canParse(reference, base) ? new URL(reference, base).href : reference;
}

/** What a document says of where it belongs: `{source}`, or `{next}`, the address to look at. */
export function foundIn(url, head, entries) {
  const { capability } = head.md;
  if (capability === "capabilitylist" && head.root === "urlset")
    return { source: offered(url, entries) };
  if (["capabilitylist", ...DESCRIPTIONS].includes(capability))
    return { next: theOnly(url, head, entries) }; // 0.9 has indexes of Capability Lists
  const up = linkIn(head, ...UP);
  if (up !== undefined && resolved(up, url) !== url) return { next: resolved(up, url) };
  if (capability === "changelist") return { source: { url, changelist: url } };
  if ([undefined, "resourcelist"].includes(capability))
    return { source: { url, resourcelist: url } };
  throw new Rejected(`${url} is a ${capability}, from which nothing leads to a Capability List`);
}

function theOnly(url, { root, md }, entries) {
  const lists = entries.map(({ loc }) => resolved(loc, url));
  if (!lists.length) throw new Rejected(`${url} offers no set of resources yet`);
  if (lists.length === 1) return lists[0];
  const names = lists.slice(0, 20).join(", ");
  const count = lists.length > MANY ? `more than ${MANY}` : lists.length;
  const isIndex = root === "sitemapindex" && DESCRIPTIONS.includes(md.capability);
  const offer = isIndex
    ? `names its sets of resources in ${count} Source Descriptions: give the address of a set`
    : `offers ${count} sets of resources: give the address of one`;
  throw new Rejected(`${url} ${offer}: ${names}`);
}

// Fetching ----------------------------------------------------------------------------------------

/** What the Source at this address offers; `Rejected` says why nothing was found. */
export async function discover(web, url) {
  if (isSocket(url)) return ofChannel(web, url);
  return walk(web, url);
}

async function walk(web, begun) {
  let url = begun;
  let missing, otherMaps;
  for (let step = 0; step < STEPS; step++) {
    const found = await look(web, url);
    missing ??= found.missing;
    otherMaps ??= found.otherMaps;
    if (found.source) {
      sayWhatElse(found.source.url, missing, otherMaps);
      return found.source;
    }
    url = found.next;
  }
  throw new Rejected(`the links from ${begun} lead in a circle, never to a Capability List`);
}

/** That something else was taken than what was asked for, or than all there is. */
function sayWhatElse(taken, missing, otherMaps) {
  if (otherMaps) console.warn(`robots.txt names ${otherMaps} more sitemaps: taking ${taken} alone`);
  if (missing) console.warn(`${missing}; taking ${taken}, to which its site leads`);
}

async function look(web, url) {
  const page = await web.page(url);
  const { pathname } = new URL(url);
  const isFront = ["/", WELL_KNOWN].includes(pathname);
  if (!isFront) checkRight(web, url, page); // a front that has no page is 403 with many servers
  const found = page.status === 200 ? read(page) : undefined;
  if (found) return found;
  const source = linkOf(page) === undefined ? await namedByHub(web, page) : undefined;
  if (source) return { source };
  if (DOCUMENT.test(pathname)) return besideDocument(url, page);
  if (page.status === 200 || isFront) return fromItsSite(web, url, page);
  if (isOfHub(page)) return below(web, url, page);
  return { ...(await fromItsSite(web, url, page)), missing: `${url} answers ${page.status}` };
}

/** What is wrong with a token that was sent, only its server knows. */
function checkRight(web, url, page) {
  if ([401, 403].includes(page.status)) {
    throw refused(url, page, web.isShown(url) ? detailIn(page.text) : undefined);
  }
}

/** A hub always says why there is nothing; hardly anybody else does it in this form. */
function isOfHub({ headers }) {
  return headers.get("Content-Type")?.startsWith(PROBLEM);
}

/** What came instead of a document, a login page perhaps, leads where it says itself. */
function besideDocument(url, page) {
  if (page.status !== 200) throw refused(url, page, detailIn(page.text));
  const link = linkOf(page);
  if (link !== undefined && resolved(link, page.url) !== url)
    return { next: resolved(link, page.url) };
  if (!/<html/i.test(page.text.slice(0, 1024))) documentIn(page, true);
  throw new Rejected(
    `${url} is no ResourceSync document and links to none: look whether it is right`,
  );
}

/** By the list that a hub has below: `http://hub/a/capabilitylist.xml` for `http://hub/a`. */
async function below(web, url, page) {
  const path = new URL(page.url).pathname.replace(/\/+$/, "");
  const listed = await web.page(resolved(`${path}/capabilitylist.xml`, page.url));
  checkRight(web, url, listed);
  const found = listed.status === 200 ? read(listed) : undefined;
  if (!found) {
    const isSet = path.lastIndexOf("/") === 0; // what a set is called
    throw refused(url, page, (isSet && detailIn(listed.text)) || detailIn(page.text));
  }
  return found;
}

/** Where a ResourceSync document leads, or nothing. */
function read(page) {
  const { head, entries } = documentIn(page) ?? {};
  if (!head || /-notification$/.test(head.md.capability)) return undefined; // its Link header says more
  return foundIn(page.url, head, entries);
}

/** The page as a ResourceSync document; nothing, or where it is to be said an error, if it is none. */
function documentIn({ url, text }, isSaid = false) {
  const reader = new DocumentReader();
  let entries = [];
  try {
    entries = [...reader.feed(text)];
    entries.push(...reader.close());
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    if (reader.hasHead && saysEnough(text, reader.head, entries))
      return { head: reader.head, entries };
    if (!isSaid) return undefined;
    throw new Rejected(
      `${url} is no ResourceSync document: ${error.message}; look whether it is right`,
    );
  }
  return { head: reader.head, entries };
}

/** Whether the beginning of a document does: of a long list; of more sets than one chooses from. */
function saysEnough(text, { md: { capability } }, entries) {
  if (DESCRIPTIONS.includes(capability)) return text.length > PAGE_CHARS && entries.length > MANY;
  return capability !== "capabilitylist";
}

function linkOf(page, relation = "resourcesync") {
  const isHtml = page.headers.get("Content-Type")?.includes("html");
  return (
    linked(page.headers.get("Link"), relation) ??
    (isHtml ? linkedInHtml(page.text ?? "", relation) : undefined)
  );
}

/** By a link in the page, by the well-known URI, or by robots.txt. */
async function fromItsSite(web, url, page) {
  const link = linkOf(page);
  if (link !== undefined && resolved(link, page.url) !== url)
    return { next: resolved(link, page.url) };
  if (new URL(url).pathname !== WELL_KNOWN) {
    const answer = await web.page(resolved(WELL_KNOWN, url));
    const found = answer.status === 200 ? read(answer) : undefined;
    if (found) return found;
  }
  const robots = await web.page(resolved("/robots.txt", url), "text/plain, */*;q=0.1");
  const [first, ...others] = robots.status === 200 ? sitemapsOf(robots.text) : [];
  if (first !== undefined) return { next: resolved(first, url), otherMaps: others.length };
  checkRight(web, url, page);
  if (page.status !== 200) throw refused(url, page);
  throw new Rejected(
    `${url} leads to no ResourceSync document: neither a link, ${WELL_KNOWN} nor robots.txt does; ` +
      "give the address of its Capability List",
  );
}

/** The socket beside a topic of which a Capability List names none, by the topic's hub. */
export async function socketOfTopic(web, topic) {
  const { body, status, headers, url } = await web.ask(topic);
  await body?.cancel(); // it may have no end, and its head says enough
  return (await namedByHub(web, { status, headers, url }))?.socket;
}

/** A topic is at its Source's own address, its set on the hub that the page names. */
async function namedByHub(web, page) {
  if (page.status !== 200) return undefined;
  const [hub, self] = ["hub", "self"].map((relation) => linkOf(page, relation));
  if (hub === undefined || self === undefined) return undefined;
  const topic = resolved(self, page.url);
  for (const url of await setsOfHub(web, resolved(hub, page.url))) {
    const listed = await web.page(url);
    const { entries } = (listed.status === 200 && documentIn(listed)) || {};
    const source = entries && offered(listed.url, entries);
    if (source?.topic === topic) return source;
  }
  return undefined;
}

async function setsOfHub(web, hub) {
  const { sets, descriptions } = await described(web, resolved(WELL_KNOWN, hub));
  for (const each of descriptions.slice(0, SETS_ASKED)) {
    if (sets.length > SETS_ASKED) break;
    sets.push(...(await described(web, each)).sets);
  }
  if (Math.max(sets.length, descriptions.length) > SETS_ASKED)
    console.warn(`${hub} has more than ${SETS_ASKED} sets: only so many are asked`);
  return sets.slice(0, SETS_ASKED);
}

/** The Capability Lists that a Source Description names, or the descriptions that its index names. */
async function described(web, url) {
  const page = await web.page(url);
  const { head, entries } = (page.status === 200 && documentIn(page)) || {};
  if (!DESCRIPTIONS.includes(head?.md.capability)) return { sets: [], descriptions: [] };
  const found = entries.map(({ loc }) => resolved(loc, page.url));
  return head.root === "sitemapindex"
    ? { sets: [], descriptions: found }
    : { sets: found, descriptions: [] };
}

/** A channel by its ws address: its http twin may link to the Capability List. */
async function ofChannel(web, url) {
  const page = await web.page(httpTwin(url));
  const link = page.status === 200 ? linkOf(page) : undefined;
  if (link === undefined) return { url, socket: url };
  return { ...(await walk(web, resolved(link, httpTwin(url)))), socket: url };
}
