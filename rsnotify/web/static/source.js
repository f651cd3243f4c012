/** The Source of this hub as a tree: its description, the set, its lists and channels, each of them judged. */

import { HOME, read, SOURCE_DESCRIPTION } from "./api.js";
import { parseDocument } from "./client/rsnotify.js";
import { counted, make, number, say, the } from "./dom.js";
import { set } from "./here.js";

const MOST = 60; // documents of a tree
const CHILDREN = 5; // of an index
const ABOVE = ["description", "capabilitylist"]; // what names other documents, besides an index

let left = 0; // documents that may still be read
let wrong = 0; // of them
let unread = 0; // documents that were named only

/** `judge` says what is wrong with a text. */
export async function drawSource(judge) {
  [left, wrong, unread] = [MOST, 0, 0];
  the.tree.replaceChildren();
  say(the["tree-says"], "Reading…");
  await branch(the.tree, ...SOURCE_DESCRIPTION, judge);
  const some = unread ? `; ${counted(unread, "more is", "more are")} named and not read` : "";
  say(the["tree-says"], wrong ? `${number(wrong)} of ${counted(MOST - left, "document")} ${wrong === 1 ? "is" : "are"} wrong${some}.`
    : `${counted(MOST - left, "document")} read, all valid${some}.`, wrong > 0);
}

/** One document, and below it what it leads to. */
async function branch(place, name, url, judge) {
  const verdict = make.span({}, "…");
  const item = make.li({}, make.a({ href: url, title: url }, name), " ", verdict);
  place.append(item);
  left -= 1;
  try {
    const text = await read(url);
    if (!text) return verdict.replaceChildren(make.span({ className: "help" }, "nothing yet")); // of a channel
    const { valid, count } = await judge(text);
    const { entries, root, md } = parseDocument(text);
    if (!valid) wrong += 1;
    verdict.replaceChildren(valid ? make.span({ className: "tag created" }, "valid") : make.a({ href: `?${new URLSearchParams({ view: "validator", url })}`, className: "bad" },
      counted(count, "violation")), make.span({ className: "help" }, ` ${counted(entries.length, "entry", "entries")}`));
    if (ABOVE.includes(md.capability) || root === "sitemapindex") await branches(item, chosen(entries, md.capability), judge);
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

/** Of the description the set that is chosen, of an index the newest. */
function chosen(entries, capability) {
  const wanted = capability === "description" && set ? entries.filter(({ loc }) => loc.startsWith(`${HOME.href}${set.name}/`))
    : ABOVE.includes(capability) ? entries : entries.slice(-CHILDREN);
  unread += entries.length - wanted.length;
  return wanted;
}
