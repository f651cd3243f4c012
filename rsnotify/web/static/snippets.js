/**
 * What there is of a set to copy: programs that follow it and publish to it; its documents.
 */

import { address, channelOf } from "./api.js";
import { byId, copyable, element } from "./dom.js";

const LANGUAGES = ["curl", "JavaScript", "Python", "Command line", "WebSub"];

const DOCUMENTS = [
  ["Capability List", "capabilitylist.xml"],
  ["Resource List", "resourcelist.xml"],
  ["Resource List Archive", "resourcelist-archive.xml"],
  ["open Change List", "changelist.xml"],
  ["Change List Index", "changelist-index.xml"],
  ["Change List Archive", "changelist-archive.xml"],
  ["Capability List of version 0.8", "capabilitylist-ws.xml"],
];

const documentOf = (set, path) => address(`${encodeURIComponent(set)}/${path}`);

export const documentsOf = (set) => [
  ...DOCUMENTS.map(([name, path]) => [name, documentOf(set, path)]),
  ["channel of changes", channelOf(set)],
  ["channel of documents (framework)", channelOf(set, "framework")],
  ["Source Description of this hub", address(".well-known/resourcesync")],
];

export function show({ name: set, private: isPrivate }) {
  byId("snippets").replaceChildren(...programs(set, isPrivate).map(([language, what, text]) => {
    const made = copyable(what, text);
    made.dataset.language = language;
    return made;
  }));
  choose();
  byId("documents").replaceChildren(...documentsOf(set).map(
    ([textContent, href]) => element("li", {}, element("a", { href, textContent }))));
}

function choose() {
  const chosen = byId("languages").querySelector(":checked").value;
  for (const each of byId("snippets").children) each.hidden = each.dataset.language !== chosen;
}

byId("languages").append(...LANGUAGES.map((value, at) => element("label", {},
  element("input", { type: "radio", name: "language", value, checked: !at, onchange: choose }), value)));

function programs(set, isPrivate) {
  const hub = address("").replace(/\/$/, "");
  const [channel, list] = [channelOf(set), documentOf(set, "capabilitylist.xml")];
  const bearer = '-H "Authorization: Bearer $RSNOTIFY_TOKEN"';
  const given = isPrivate ? ` ${bearer}` : "";
  const [curl, js, python, commands, websub] = LANGUAGES;
  return [
    [curl, "follow", `curl -N${given} -H "Accept: text/event-stream" \\
  ${channel}`],
    [curl, "publish", `curl ${bearer} -H "Content-Type: application/json" \\
  -d '{"loc": "http://example.com/res1", "change": "updated"}' \\
  ${hub}/api/sets/${set}/changes`],
    [js, "follow, in a web page", `import { follow } from "${hub}/static/client/rsnotify.js";

for await (const { change, loc } of follow("${list}"${isPrivate ? ', { token: "YOUR TOKEN" }' : ""})) {
  console.log(change, loc);
}`],
    [python, "follow", `from rsnotify_client import follow_sync

for change in follow_sync("${list}"${isPrivate ? ', token="YOUR TOKEN"' : ""}):
    print(change.change, change.loc, flush=True)`],
    [python, "publish", `import os
from rsnotify_client import Publisher

with Publisher("${hub}", os.environ["RSNOTIFY_TOKEN"]) as publisher:
    publisher.updated("${set}", "http://example.com/res1")`],
    [commands, "follow", `rsnotify subscribe ${set} --url ${hub}`],
    [commands, "publish", `rsnotify publish ${set} http://example.com/res1 --url ${hub}`],
    [commands, "keep a copy", `rsnotify mirror ${list} copy`],
    [websub, "subscribe; CALLBACK is your address", `curl${given} -d hub.mode=subscribe --data-urlencode "hub.callback=$CALLBACK" \\
  --data-urlencode hub.topic=${channel} ${hub}/hub`],
  ];
}
