/**
 * What there is of the chosen set: its documents, its channels, the commands to use it.
 */

import { address, channelOf } from "./api.js";
import { byId, copyable, element } from "./dom.js";

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

/** Fill the selection; the set that stays, or becomes, chosen. */
export function offer(sets, wanted) {
  const options = sets.map(({ name, private: isPrivate }) => element("option",
    { value: name, textContent: isPrivate ? `${name} (private)` : name, selected: name === wanted }));
  byId("set").replaceChildren(...options);
  byId("set").disabled = sets.length === 0;
  return sets.find(({ name }) => name === byId("set").value);
}

export function show(set) {
  for (const place of document.querySelectorAll(".set-name")) place.textContent = set;
  byId("commands").replaceChildren(...commands(set).map(([label, text]) => copyable(label, text)));
  byId("addresses").replaceChildren(
    ...addresses(set).map(([label, text]) => copyable(label, text)));
  byId("documents").replaceChildren(...documentsOf(set).map(
    ([name, href]) => element("li", {}, element("a", { href, textContent: name }))));
  const none = element("option", { value: "", textContent: "none: the one below" });
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
