/** The Source of this hub as a tree: its description, the set, its lists and channels, each of them judged. */

import { address, documentsOf, HOME, read, SOURCE_DESCRIPTION } from "./api.js";
import { parseDocument } from "./client/rsnotify.js";
import { breakable, counted, make, number, say, the } from "./dom.js";
import { set } from "./here.js";
import { ABOVE, chosen, MOST } from "./tree.js";

const TOO_LONG = 413;

let left = 0; // documents that may still be read
let wrong = 0; // of them
let unjudged = 0; // of them, for their length
let unread = 0; // documents that were named only

/** `judge` says what is wrong with a text. */
export async function drawSource(judge) {
  [left, wrong, unjudged, unread] = [MOST, 0, 0, 0];
  the.tree.replaceChildren();
  say(the["tree-says"], "Reading…");
  await branch(the.tree, ...SOURCE_DESCRIPTION, judge);
  const long = unjudged ? `; ${counted(unjudged, "is", "are")} too long to be checked here` : "";
  const some = unread ? `; ${counted(unread, "more is", "more are")} named and not read` : "";
  say(the["tree-says"], wrong ? `${number(wrong)} of ${counted(MOST - left, "document")} ${wrong === 1 ? "is" : "are"} wrong${long}${some}.`
    : `${counted(MOST - left, "document")} read, all ${long ? "others " : ""}valid${long}${some}.`, wrong > 0);
}

const inOneLine = (words) => words.replaceAll(" ", "\u00a0");

/** One document, and below it what it leads to. */
async function branch(place, name, url, judge) {
  const verdict = make.span({}, "…");
  const item = make.li({}, make.a({ href: url, title: url }, ...breakable(name)), " ", verdict);
  place.append(item);
  left -= 1;
  try {
    const text = await read(url);
    if (!text) return verdict.replaceChildren(make.span({ className: "help" }, "nothing yet")); // of a channel
    const judged = await judge(text).catch(unlessTooLong);
    const { entries, root, md: { capability } } = parseDocument(text);
    verdict.replaceChildren(shown(judged, url), make.span({ className: "help" }, ` ${inOneLine(counted(entries.length, "entry", "entries"))}`));
    if (!ABOVE.includes(capability) && root !== "sitemapindex") return;
    const followed = chosen(entries, { root, capability }, set && await placesOfSet(root, capability));
    unread += entries.length - followed.length;
    await branches(item, followed, judge);
  } catch ({ message }) {
    wrong += 1;
    verdict.replaceChildren(make.span({ className: "bad" }, message));
  }
}

async function branches(item, entries, judge) {
  const list = make.ul();
  item.append(list);
  for (const { loc, md: { capability = "document" } } of entries) {
    if (left > 0 && loc.startsWith(HOME.href)) await branch(list, loc.slice(HOME.href.length), loc, judge);
    else {
      unread += 1;
      list.append(make.li({}, loc, make.span({ className: "help" }, ` ${capability}, not read`)));
    }
  }
}

/** Where the chosen set is, and the description above it, which only an index makes worth asking for. */
async function placesOfSet(root, capability) {
  const below = address(`${set.name}/`);
  if (root !== "sitemapindex" || capability !== "description") return { below };
  const [[, capabilities]] = documentsOf(set.name);
  return { below, above: linkOf(parseDocument(await read(capabilities)), "up") };
}

const linkOf = ({ links }, relation) => links.find(({ rel }) => rel === relation)?.href;

function unlessTooLong(error) {
  if (error.status !== TOO_LONG) throw error;
  return { why: error.message };
}

function shown({ valid, count, why }, url) {
  if (why) {
    unjudged += 1;
    return make.span({ className: "help" }, why);
  }
  if (valid) return make.span({ className: "tag created" }, "valid");
  wrong += 1;
  return make.a({ href: `?${new URLSearchParams({ view: "validator", url })}`, className: "bad" }, inOneLine(counted(count, "violation")));
}
