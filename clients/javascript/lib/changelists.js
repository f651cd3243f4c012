// A Source's Change Lists, read from a position on: the archive, closed lists, the open one.
//
// Lists must join one another; where one is missing, `HistoryGone` says so. A document is read entry
// by entry, plain or compressed, up to a cap, and page by page to the last one.

import { DocumentReader, linkIn, timedChanges } from "./document.js";
import { linked } from "./discovery.js";
import { HistoryGone, Rejected, SetBack } from "./errors.js";
import { Furthest } from "./furthest.js";
import { ChangeOrder } from "./order.js";
import { endOf, later, positionOf } from "./position.js";
import { decoded, detailIn, pieces, refused, textOf } from "./web.js";

export const PAGES = 10_000;
export const DEPTH = 3; // so many indexes may be under each other; the last of them names lists
export const DOCUMENT_BYTES = 50 * 1024 * 1024; // the specification's limit
const GZIP = [0x1f, 0x8b];

// Deciding ----------------------------------------------------------------------------------------

/** The lists that an index or an archive names, in its order. */
export function namedLists(url, entries) {
  return entries.map(({ loc, lastmod, md }) => ({
    loc: URL.canParse(loc, url) ? new URL(loc, url).href : loc,
    from: positionOf(md.from),
    until: positionOf(md.until),
    modified: positionOf(lastmod),
  }));
}

/** From where on these lists tell everything, if they say it. */
export function beginning(lists) {
  return lists
    .map(({ from }) => from)
    .filter(Boolean)
    .sort()[0];
}

/** Those that may tell of what came after the cursor; `HistoryGone` where they do not join. */
export function listsAfter(lists, cursor) {
  if (cursor === undefined) return lists;
  const found = [];
  let reached = cursor;
  for (const list of lists) {
    const ended = list.until ?? (list.from === undefined ? list.modified : undefined);
    if (ended !== undefined && endOf(ended) < cursor) continue;
    if (list.from > reached) throw new HistoryGone(reached, `a Change List begins at ${list.from}`);
    reached = later(reached, list.until);
    found.push(list);
  }
  return found;
}

/**
 * Up to where a list tells everything, by its first page and its last: each page says where it ends
 * itself, or all say where the list does.
 */
export function closedAt(first, last) {
  const until = positionOf(first.md.until);
  const begins = positionOf(last.md.from);
  return until === undefined || begins >= until ? positionOf(last.md.until) : until;
}

/** The address of the page that the last of these pages, found at `url`, names as the next. */
export function nextAfter(pages, url, named) {
  const last = pages.at(-1);
  const page = URL.canParse(named, url) ? new URL(named, url).href : named;
  if (pages.includes(page)) {
    throw new Rejected(`${last} names ${page} as its next page, which was read before it`);
  }
  if (pages.length >= PAGES) throw new Rejected(`${pages[0]} has more than ${PAGES} pages`);
  if (![pages[0], url].map(hostOf).includes(hostOf(page))) {
    throw new Rejected(`${last} names a next page at another host: ${page}`);
  }
  return page;
}

function hostOf(url) {
  return URL.canParse(url) ? new URL(url).host : undefined;
}

// Fetching ----------------------------------------------------------------------------------------

export class ChangeLists {
  #web;
  #url;
  #archive;
  #standsAlone = false;
  #read = new Map(); // of each list read to its end: its ETag, and how far it told
  #begins = new Map(); // of lists, where no index says it
  #askedAt;
  #furthest = new Furthest(); // of this reading
  #before = {}; // of all that came before it

  /** `askedAt(url)`: the address at which a list is asked for, where a part of it is wanted. */
  constructor(web, url, archive, askedAt = (address) => address) {
    this.#askedAt = askedAt;
    this.#web = web;
    this.#url = url;
    this.#archive = archive;
  }

  /**
   * All changes from the cursor on, those at the cursor included, oldest first.
   *
   * A list may be closed and another one begun after the index was read; then it is read again.
   * Where the lists then end before what was read of them earlier, that is `SetBack`.
   */
  async *after(cursor) {
    for (let failedAt; ; failedAt = cursor) {
      try {
        for await (const received of this.#listed(cursor)) {
          cursor = later(received.until, cursor);
          yield received;
        }
        return;
      } catch (error) {
        if (!(error instanceof HistoryGone) || failedAt === cursor) throw error;
      }
    }
  }

  async *#listed(cursor) {
    this.#furthest = new Furthest();
    for (const { loc } of await this.#lists(cursor)) {
      for await (const received of this.#changes(loc, cursor)) {
        cursor = later(received.until, cursor);
        yield received;
      }
    }
    this.#compareWithEarlier();
  }

  #compareWithEarlier() {
    const { change, end } = this.#furthest;
    const problem = this.#furthest.shorterThan(this.#before);
    this.#before = { change: later(change, this.#before.change), end: later(end, this.#before.end) };
    if (problem === undefined) return;
    this.#before = {};
    this.#read.clear(); // unchanged would be: as it was when it was set back
    throw new SetBack(`${this.#url}: ${problem}`, later(change, end));
  }

  /** The last changes that there are, of one time: whoever follows from now on begins behind them. */
  async end() {
    let last;
    let timed = [];
    for (const { loc } of (await this.#lists(undefined)).reverse()) {
      for await (const received of this.#changes(loc, undefined)) {
        if (last && !received.timed.length) continue;
        const latest = received.timed.filter(({ position }) => position === received.until);
        timed = received.until === last?.until ? timed.concat(latest) : latest;
        last = received;
      }
      if (last) break;
    }
    return last && { ...last, timed };
  }

  async #lists(cursor) {
    const lists = await this.#named();
    const begins = beginning(lists);
    const needsNoMore = cursor === undefined || begins === undefined || cursor >= begins;
    const archived = needsNoMore || !this.#archive ? [] : await this.#archived(this.#archive);
    const found = listsAfter(await this.#inOrder([...archived, ...lists]), cursor);
    for (const list of lists.filter((each) => !found.includes(each)))
      this.#furthest.noteOther(list.until ?? list.modified);
    return found;
  }

  /**
   * The oldest first. Where an index says not of each when it begins, the lists are asked: what is
   * read of a newer one first would hide all changes of an older one.
   */
  async #inOrder(lists) {
    if (lists.length < 2) return lists;
    const begun = [];
    for (const list of lists) {
      const begin = list.from ?? (await this.#beginOf(list.loc));
      if (begin === undefined) return lists;
      begun.push({ list, begin });
    }
    begun.sort((one, other) => (one.begin < other.begin ? -1 : Number(one.begin > other.begin)));
    return begun.map(({ list }) => list);
  }

  /** By its own head; undefined if it says nothing, or cannot be read, which is said later. */
  async #beginOf(loc) {
    if (this.#begins.has(loc)) return this.#begins.get(loc);
    try {
      for await (const { head } of this.#document(loc)) {
        const begin = beginningOf(head);
        // An open one may be another at the same address later.
        if (begin === undefined || head.md.until !== undefined) this.#begins.set(loc, begin);
        return begin;
      }
    } catch (error) {
      if (!(error instanceof Rejected)) throw error;
    }
    return undefined;
  }

  /** What the index names; or the only list that there is, or its index. */
  async #named(depth = 0) {
    if (this.#standsAlone) return [{ loc: this.#url }];
    const found = [];
    for await (const { head, entries } of this.#document(this.#url)) {
      if (head.root === "urlset") return this.#around(head, depth);
      found.push(...namedLists(this.#url, entries));
    }
    return found;
  }

  /** A list stands alone, unless it names the index that it belongs to. */
  async #around(head, depth) {
    const index = linkIn(head, "index");
    const at = index && URL.canParse(index, this.#url) ? new URL(index, this.#url).href : this.#url;
    if (at === this.#url || depth > 0) {
      this.#standsAlone = index === undefined;
      const until = linkIn(head, "next") ? undefined : positionOf(head.md.until);
      return [{ loc: this.#url, from: positionOf(head.md.from), until }];
    }
    this.#url = at;
    return this.#named(1);
  }

  async #archived(url, depth = 0) {
    const found = [];
    let isIndex = false;
    for await (const { head, entries } of this.#document(url)) {
      isIndex = head.root === "sitemapindex";
      found.push(...namedLists(url, entries));
    }
    if (!isIndex || depth > 0) return found;
    const parts = [];
    for (const { loc } of found) parts.push(...(await this.#archived(loc, 1)));
    return parts;
  }

  /**
   * What a Resource List at this address lists, or its parts: `{entries, moment}` again and again;
   * the moment is that of the document, which an index says before its parts.
   */
  async *resources(url = this.#url, above = []) {
    const parts = [];
    for await (const { head, entries } of this.#document(url)) {
      const isIndex = head.root === "sitemapindex";
      if (isIndex) parts.push(...namedLists(url, entries));
      yield { entries: isIndex ? [] : entries, moment: positionOf(head.md.at) };
    }
    for (const { loc } of partsOf(url, above, parts)) yield* this.resources(loc, [...above, url]);
  }

  /** The changes of one list; or of the lists of an index under the index. */
  async *#changes(url, cursor, above = this.#standsAlone ? [] : [this.#url]) {
    const parts = [];
    yield* this.#changesIn(url, cursor, parts);
    for (const part of await this.#inOrder(partsOf(url, above, parts))) {
      yield* this.#changes(part.loc, cursor, [...above, url]);
    }
  }

  /** As stretches that join; nothing if it is known to have none. What an index names are parts. */
  async *#changesIn(url, cursor, parts) {
    const read = this.#read.get(url);
    const etag = read && cursor !== undefined && cursor >= read.position ? read.etag : undefined;
    let begin, end;
    let isUnchanged = true;
    const at = this.#askedAt(url);
    const given = ordered(url, this.#document(at, etag));
    for await (const { head, entries, tag, lastHead = head, modified } of given) {
      isUnchanged = false;
      if (head.root === "sitemapindex") {
        parts.push(...namedLists(url, entries));
        if (tag !== undefined && !parts.length) throw new Rejected(`${url} is an index of nothing`);
        continue;
      }
      begin ??= beginningOf(head, cursor);
      if (end === undefined && entries.length && !entries.some(({ md }) => md.datetime))
        begin = beginOfUntimed(url, entries, begin, cursor, modified);
      const all = timedChanges(entries, end ?? begin);
      this.#furthest.noteChanges(all);
      const timed = atCursor(all, cursor);
      if (tag !== undefined) this.#noteBounds(head, lastHead);
      const until = later(timed.at(-1)?.position ?? end ?? begin, closedAt(head, lastHead));
      const last = tag === undefined ? timed.at(-1)?.position : until;
      if (last === undefined) continue;
      yield { payload: "", from: end ?? begin ?? last, until: last, timed, joins: false };
      end = last;
      if (tag !== undefined) this.#read.set(url, { etag: tag, position: later(end, cursor) });
    }
    if (isUnchanged) this.#furthest.noteOther(read?.position);
  }

  #noteBounds(...heads) {
    this.#furthest.noteOther(positionOf(heads[0].md.from));
    for (const { md } of heads) this.#furthest.noteEnd(positionOf(md.until));
  }

  /** `{head, entries}` again and again; the last one has the `tag`, maybe null, and `lastHead`. */
  async *#document(url, etag) {
    const pages = [url];
    for (let head, modified; ; ) {
      const answer = await this.#asked(pages.at(-1), pages.length === 1 && etag);
      if (!answer) return;
      if (pages.length === 1) modified = answer.headers.get("Last-Modified") ?? undefined;
      let page;
      for await (page of this.#entries(pages.at(-1), answer)) {
        head ??= page.head;
        checkKind(pages.at(-1), page.head, head);
        yield { head, entries: page.entries, modified };
      }
      const next = linkIn(page.head, "next") ?? linked(answer.headers.get("Link"), "next");
      if (next === undefined) {
        const tag = pages.length === 1 ? answer.headers.get("ETag") : null;
        yield { head, entries: [], tag, lastHead: page.head, modified };
        return;
      }
      pages.push(nextAfter(pages, answer.url || pages.at(-1), next));
    }
  }

  async #asked(url, etag) {
    const headers = { Accept: "application/xml, text/xml;q=0.9, */*;q=0.1" };
    if (etag && !this.#web.isForeign(url)) headers["If-None-Match"] = etag;
    const answer = await this.#web.ask(url, { headers });
    if (answer.status === 304 && "If-None-Match" in headers) return undefined;
    if (answer.status === 400) throw refused(url, answer, detailIn(await textOf(answer)));
    if (answer.status !== 200) throw refused(url, answer);
    return answer;
  }

  /** `{head, entries}` of one page; the last one may have no entries. */
  async *#entries(url, answer) {
    const reader = new DocumentReader();
    try {
      for await (const text of decoded(bounded(unpacked(pieces(answer))), { fatal: true })) {
        const entries = reader.feed(text);
        if (entries.length) yield { head: reader.head, entries };
      }
      const entries = reader.close();
      yield { head: reader.head, entries };
    } catch (error) {
      throw error.constructor === Rejected ? new Rejected(`${url}: ${error.message}`) : error;
    }
  }
}

/** What a document gives, the changes in the order of their times; the last has none. */
async function* ordered(url, pieces) {
  const order = new ChangeOrder();
  for await (const piece of pieces) {
    const { head, entries, tag, modified } = piece;
    if (head.root === "sitemapindex") yield piece;
    else if (tag === undefined) yield { head, entries: order.feed(entries), modified };
    else {
      yield { head, entries: order.close(), modified };
      if (order.problem) console.warn(`${url}: ${order.problem}`);
      yield piece;
    }
  }
}

/** The lists that an index names, which is under these; `Rejected` if it leads nowhere. */
function partsOf(url, above, parts) {
  for (const { loc } of parts) {
    if (loc === url || above.includes(loc)) {
      throw new Rejected(`${url} names ${loc}: it is an index under an index of itself`);
    }
  }
  if (parts.length && above.length >= DEPTH) {
    throw new Rejected(`${url} is an index under an index, ${DEPTH + 1} of them in all`);
  }
  return parts;
}

/** All pages are of one kind: what comes instead of one is none. */
function checkKind(url, { root, md }, first) {
  if (root === first.root && md.capability === first.md.capability) return;
  const kinds = [md.capability ?? root, first.md.capability ?? first.root];
  throw new Rejected(`${url} is a ${kinds[0]}, not a page of a ${kinds[1]}`);
}

/** A time in whole seconds may be any moment of its second: at the cursor, if that is in it. */
function atCursor(timed, cursor) {
  if (cursor === undefined) return timed;
  let before;
  return timed.map(({ position, change }) => {
    const isWhole = positionOf(change.datetime) === position && !change.datetime.includes(".");
    const mayBeThere = isWhole && position < cursor && endOf(position) >= cursor;
    before = later(mayBeThere ? cursor : position, before);
    return { position: before, change };
  });
}

/**
 * Where changes stand that do not say when they happened: behind what is known, when their list was
 * written, if nothing else says it. A `lastmod` of what was deleted may be older.
 */
function beginOfUntimed(url, entries, begin, cursor, modified) {
  const hasTimes = entries.some(({ lastmod }) => lastmod);
  if (begin !== undefined && (hasTimes || cursor === undefined || begin >= cursor)) return begin;
  const written = Date.parse(modified);
  if (!Number.isNaN(written)) return endOf(positionOf(new Date(written).toISOString()));
  if (!hasTimes)
    console.warn(`${url}: it does not say when anything changed: give each change a datetime`);
  return begin;
}

function beginningOf(head, cursor) {
  const begin = head.md.capability === "changelist" ? positionOf(head.md.from) : undefined;
  if (cursor !== undefined && begin > cursor) {
    throw new HistoryGone(cursor, `the Change List begins at ${begin}`);
  }
  return begin;
}

async function* bounded(parts) {
  let total = 0;
  for await (const piece of parts) {
    total += piece.length;
    if (total > DOCUMENT_BYTES) throw new Rejected(`it is longer than ${DOCUMENT_BYTES} bytes`);
    yield piece;
  }
}

/** Inflates what begins as gzip does; leaves the rest as it is. */
async function* unpacked(parts) {
  const first = await parts.next();
  while (!first.done && first.value.length < GZIP.length) {
    const { done, value } = await parts.next();
    if (done) break;
    first.value = Uint8Array.from([...first.value, ...value]);
  }
  const again = (async function* () {
    if (!first.done) yield first.value;
    yield* parts;
  })();
  if (first.done || !GZIP.every((byte, index) => first.value[index] === byte)) return yield* again;
  const body = streamOf(again).pipeThrough(new DecompressionStream("gzip"));
  yield* pieces({ body }, undefined, () => new Rejected("it is not gzip up to its end"));
}

function streamOf(parts) {
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = await parts.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    cancel: () => parts.return(),
  });
}
