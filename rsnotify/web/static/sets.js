/**
 * The sets to choose from, and what there is of the chosen one: documents, channels, commands.
 */

import { address, ask, channelOf } from "./api.js";
import { byId, copyable, element, tell } from "./dom.js";

const SHOWN = 50; // sets to choose from at once

const DOCUMENTS = [
  ["Capability List", "capabilitylist.xml"],
  ["Resource List", "resourcelist.xml"],
  ["Resource List Archive", "resourcelist-archive.xml"],
  ["open Change List", "changelist.xml"],
  ["Change List Index", "changelist-index.xml"],
  ["Change List Archive", "changelist-archive.xml"],
  ["Capability List of version 0.8", "capabilitylist-ws.xml"],
];

export const documentsOf = (set) => [
  ...DOCUMENTS.map(([name, path]) => [name, address(`${encodeURIComponent(set)}/${path}`)]),
  ["Source Description", address(".well-known/resourcesync")],
];

/** The first sets that have this in their names: `{found, hasMore, wanted}`, the last the one of a name. */
export async function find(search, name) {
  const asked = (query) => ask("GET", `api/sets?${new URLSearchParams(query)}`);
  const [found, named] = await Promise.all([
    asked({ search, limit: SHOWN + 1 }), name ? asked({ name }) : [],
  ]);
  return { found: found.slice(0, SHOWN), hasMore: found.length > SHOWN, wanted: named[0] };
}

/** Fill the selection; the set that stays, or becomes, chosen. */
export function offer({ found, hasMore, wanted }, name) {
  const isListed = !wanted || found.some((each) => each.name === wanted.name);
  const all = isListed ? found : [wanted, ...found];
  byId("set").replaceChildren(...all.map((each) => option(each, wanted)));
  byId("set").disabled = all.length === 0;
  if (hasMore) byId("find-place").hidden = false; // from now on, however few are found
  tell(byId("found"), told(found, hasMore, name && !wanted ? name : null));
  return named({ found, wanted }, byId("set").value);
}

export const named = ({ found, wanted }, name) =>
  [...found, ...(wanted ? [wanted] : [])].find((each) => each.name === name);

const option = ({ name, private: isPrivate }, wanted) => element("option",
  { value: name, textContent: isPrivate ? `${name} (private)` : name, selected: name === wanted?.name });

function told(found, hasMore, missing) {
  if (missing) return `There is no set ${missing}, or it is private and needs a token.`;
  if (hasMore) return `the list has the first ${SHOWN}`;
  return byId("find").value ? `${found.length} found: choose from the list` : "";
}

export function show({ name: set, private: isPrivate }) {
  byId("documents-private").hidden = !isPrivate;
  for (const place of document.querySelectorAll(".set-name")) place.textContent = set;
  byId("commands").replaceChildren(...commands(set).map(([label, text]) => copyable(label, text)));
  byId("addresses").replaceChildren(
    ...addresses(set).map(([label, text]) => copyable(label, text)));
  byId("documents").replaceChildren(...documentsOf(set).map(
    ([name, href]) => element("li", {}, element("a", { href, textContent: name }))));
  const none = element("option", { value: "", textContent: "none: the text below" });
  byId("own").replaceChildren(none, ...documentsOf(set).map(
    ([name, value]) => element("option", { value, textContent: name })));
}

function commands(set) {
  const hub = address("").replace(/\/$/, "");
  return [
    ["follow", `rsnotify subscribe ${set} --url ${hub}`],
    ["mirror", `rsnotify mirror ${address(`${set}/capabilitylist.xml`)} copy`],
    ["publish", `rsnotify publish ${set} http://example.com/res1 --url ${hub}`],
  ];
}

function addresses(set) {
  const topic = channelOf(set);
  return [
    ["WebSocket", topic.replace(/^http/, "ws")],
    ["event stream", topic],
    ["WebSub topic", topic],
    ["WebSub hub", address("hub")],
    ["framework channel", channelOf(set, "framework")],
  ];
}
