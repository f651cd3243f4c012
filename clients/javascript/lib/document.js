// ResourceSync documents: `<urlset>` and `<sitemapindex>` of every version, entry by entry.
//
// Known by namespace, never by prefix. Reading is lenient: what does not fit its field is kept or
// left out, what is missing is missing.

import { DomReader } from "./dom.js";
import { Rejected } from "./errors.js";
import { positionOf } from "./position.js";
import { XmlReader } from "./xml.js";

const SITEMAP = "{http://www.sitemaps.org/schemas/sitemap/0.9}";
const RS = "{http://www.openarchives.org/rs/terms/}";
const DRAFT = "{http://www.openarchives.org/rs/}"; // of January 2013
const MD = [`${RS}md`, `${DRAFT}md`];
const LN = [`${RS}ln`, `${DRAFT}ln`];
const ROOTS = { [`${SITEMAP}urlset`]: "url", [`${SITEMAP}sitemapindex`]: "sitemap" };
const TEXTS = ["loc", "lastmod", "changefreq", "priority"].map((name) => `${SITEMAP}${name}`);
const CHANGES = ["created", "updated", "deleted"];
const NUMBERS = ["length", "pri"];
export const HEAD_LINKS = 1_000; // of the head are kept
const ATTRIBUTES = ["change", "datetime", "length", "type", "encoding", "capability"]; // of changes

/** Reads one document: feed it text, it gives the entries that are complete. */
export class DocumentReader {
  #reader;
  #head = { md: {}, links: [] };
  #hasEntries = false;
  #isDraft = false;
  #nameless = 0; // entries without an address: they are skipped, and that is said
  #linksLeft = 0; // out of the head
  #held = []; // changes of the draft, which may be newest first

  constructor(reader = typeof DOMParser === "undefined" ? new XmlReader() : new DomReader()) {
    this.#reader = reader;
  }

  /** What stands before the entries: `{root, md, links}`; known with the first of them. */
  get head() {
    return { root: rootOf(this.#reader.root), ...this.#head };
  }

  get hasHead() {
    return this.#hasEntries;
  }

  feed(text) {
    return this.#entries(this.#reader.feed(text));
  }

  close() {
    const entries = this.#entries(this.#reader.close());
    rootOf(this.#reader.root);
    this.#hasEntries = true;
    if (this.#nameless) console.warn(`skipped: it has entries without <loc>: ${this.#nameless}`);
    if (this.#linksLeft)
      console.warn(`skipped: links of its head beyond ${HEAD_LINKS}: ${this.#linksLeft}`);
    return [...this.#held.sort(byLastmod), ...entries];
  }

  #entries(nodes) {
    if (this.#reader.root !== undefined) rootOf(this.#reader.root);
    const all = nodes.filter((node) => !this.#isOfHead(node)).map(entryOf);
    const entries = all.filter((entry) => entry.loc);
    this.#nameless += all.length - entries.length;
    if (!this.#isDraft || this.#head.md.capability !== "changelist") return entries;
    this.#held = this.#held.concat(entries);
    return [];
  }

  #isOfHead(node) {
    const isEntry = node.name === `${SITEMAP}${ROOTS[this.#reader.root]}`;
    if (isEntry) this.#hasEntries = true;
    else if (MD.includes(node.name)) {
      this.#head.md = attributesOf(node);
      this.#isDraft = node.name.startsWith(DRAFT);
    } else if (LN.includes(node.name)) {
      if (this.#head.links.length < HEAD_LINKS) this.#head.links.push(attributesOf(node));
      else this.#linksLeft += 1;
    }
    return !isEntry;
  }
}

/** A whole document: `{root, md, links, entries}`. */
export function parseDocument(text, reader = new DocumentReader()) {
  const entries = [...reader.feed(text), ...reader.close()];
  return { ...reader.head, entries };
}

function rootOf(name) {
  if (Object.hasOwn(ROOTS, name)) return name.slice(SITEMAP.length);
  throw new Rejected(`the root element is ${name}: it must be ${SITEMAP}urlset or sitemapindex`);
}

function entryOf({ children }) {
  const entry = { md: {}, links: [] };
  for (const child of children) {
    const { name, text } = child;
    if (MD.includes(name)) entry.md = attributesOf(child);
    else if (LN.includes(name)) entry.links.push(attributesOf(child));
    else if (TEXTS.includes(name)) entry[name.slice(SITEMAP.length)] = text.trim();
  }
  return entry;
}

/** The draft gives the time of a change in its `lastmod`. */
function byLastmod(one, other) {
  const [before, after] = [one, other].map(({ lastmod }) => positionOf(lastmod) ?? "");
  return before < after ? -1 : Number(before > after);
}

function attributesOf({ attributes }) {
  const found = { ...attributes };
  for (const name of NUMBERS) {
    if (name in found)
      found[name] = /^\s*\d{1,15}\s*$/.test(found[name]) ? Number(found[name]) : undefined;
  }
  return found;
}

/** The target of the first of these relations that a head has; their case says nothing. */
export function linkIn(head, ...relations) {
  for (const relation of relations) {
    const link = head.links.find(({ rel }) => rel?.toLowerCase() === relation);
    if (link?.href) return link.href;
  }
  return undefined;
}

/** The change that an entry describes. */
export function changeOf({ md, links, ...elements }) {
  const hash = md.hash?.trim().split(/\s+/).join(" ");
  const priority = elements.priority && Number(elements.priority);
  const described = ATTRIBUTES.map((name) => [name, md[name]]);
  const fields = { ...elements, priority, ...Object.fromEntries(described), hash };
  const known = Object.entries(fields).filter(([, value]) => value !== undefined);
  return { ...Object.fromEntries(known), links };
}

/** Each change with its position: its datetime, else its lastmod where that fits. What is no change
 * that we know, and a datetime that cannot be read, are skipped, and that is said. */
export function timedChanges(entries, begin) {
  return timed(entries.map(changeOf), begin);
}

export function timed(changes, begin) {
  const skipped = [];
  const found = [];
  let before = begin;
  for (const change of changes) {
    const { datetime, ...others } = change;
    const loc = change.loc.slice(0, 200);
    if (!CHANGES.includes(change.change)) {
      skipped.push(`${loc}: change is ${String(change.change).slice(0, 80)}`);
      continue;
    }
    const when = positionOf(datetime);
    const isUnreadable = datetime && when === undefined;
    if (isUnreadable) skipped.push(`the datetime ${String(datetime).slice(0, 80)} of ${loc}`);
    const told = when ?? positionOf(change.lastmod);
    if (told !== undefined && (before === undefined || told > before)) before = told;
    found.push({ position: before, change: isUnreadable ? others : change });
  }
  if (skipped.length) console.warn(`skipped: ${skipped[0]}; ${skipped.length} in all`);
  return found;
}
