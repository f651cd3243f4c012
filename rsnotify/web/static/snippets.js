/** The set's programs to copy, and its documents. */

import { address, channelOf, documentsOf, SAMPLE, SOURCE_DESCRIPTION } from "./api.js";
import { copyable, make, the } from "./dom.js";
import { set as record } from "./here.js";

const { name: set, private: isPrivate } = record;

export const documents = [...documentsOf(set), SOURCE_DESCRIPTION];

const hasOai = record.oai && the.documents.dataset.oai === "on";
const views = [
  ...(hasOai ? [["OAI-PMH", address(`${set}/oai?verb=Identify`)]] : []),
  ...(record.atom ? [["Atom feed", address(`${set}/feed.atom`)]] : []),
  ...(record.iiif ? [["activities of IIIF", address(`${set}/activities`)]] : []),
];

the.documents.append(...[...documents, ...views].map(([name, href]) => make.li({}, make.a({ href }, name))));
the.snippets.append(...Object.entries(programs()).map(([language, of], at) => make.details({ name: "language", open: !at },
  make.summary({}, language), ...Object.entries(of).map(([what, text]) => copyable(what, text)))));

function programs() {
  const hub = address("").replace(/\/$/, "");
  const [channel, list] = [channelOf(set), documents[0][1]];
  const bearer = '-H "Authorization: Bearer $RSNOTIFY_TOKEN"';
  const activate = ". .venv/bin/activate  # in a clone, after make run\n";
  const given = isPrivate ? ` ${bearer}` : "";
  return {
    curl: {
      follow: `curl -N${given} -H "Accept: text/event-stream" \\
  ${channel}`,
      publish: `curl ${bearer} -H "Content-Type: application/json" \\
  -H "Idempotency-Key: $(date +%s%N)" \\
  -d '{"loc": "${SAMPLE}", "change": "updated"}' \\
  ${hub}/api/sets/${set}/changes`,
    },
    JavaScript: {
      "follow, in a web page": `import { follow } from "${hub}/static/client/rsnotify.js";

for await (const { change, loc } of follow("${list}"${isPrivate ? ', { token: "YOUR TOKEN" }' : ""})) {
  console.log(change, loc);
}`,
    },
    Python: {
      follow: `from rsnotify_client import follow

for change in follow("${list}"${isPrivate ? ', token="YOUR TOKEN"' : ""}):
    print(change.change, change.loc, flush=True)`,
      publish: `import os
from rsnotify_client import Publisher

with Publisher("${hub}", os.environ["RSNOTIFY_TOKEN"]) as publisher:
    publisher.updated("${set}", "${SAMPLE}")`,
    },
    "Command line": {
      follow: `${activate}rsnotify subscribe ${set} --url ${hub}`,
      publish: `${activate}rsnotify publish ${set} ${SAMPLE} --url ${hub}`,
      "keep a copy": `${activate}rsnotify mirror ${list} copy`,
    },
    WebSub: {
      "subscribe; CALLBACK is your address": `curl${given} -d hub.mode=subscribe --data-urlencode "hub.callback=$CALLBACK" \\
  --data-urlencode hub.topic=${channel} ${hub}/hub`,
    },
  };
}
