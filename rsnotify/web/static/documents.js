/** The documents and channels of the set: what each is, how old, and how much is in it. */

import { address, documentsOf, send, SOURCE_DESCRIPTION } from "./api.js";
import { ago, counted, make, the } from "./dom.js";
import { set } from "./here.js";

const readers = (kind) => ({ channels }) =>
  counted(Object.values(channels.find((each) => each.kind === kind).readers).reduce((sum, each) => sum + each), "reader");

const ABOUT = [ // what each is, and how much is in it by the hub's status
  ["what the set offers, and where"],
  ["all resources, as they were at one moment", ({ resources }) => counted(resources ?? 0, "resource")],
  ["what has changed since the last one was closed"],
  ["all Change Lists that can be pulled", ({ change_lists: closed }) => counted(closed + 1, "list")],
  ["each change as it comes", readers("change")],
  ["each document as it is made", readers("framework")],
  ["the same for any HTTP client", ({ changes }) => counted(changes, "change")],
  ["the sets of this hub"],
];
const documents = [...documentsOf(set.name), SOURCE_DESCRIPTION].map((each, at) => [...each, ...ABOUT[at]]);

export function showDocuments() {
  const hasOai = set.oai && the.documents.dataset.oai === "on";
  const views = [
    ["DCAT", address(`${set.name}/dcat.ttl`), "for data portals"],
    ...(hasOai ? [["OAI-PMH", address(`${set.name}/oai?verb=Identify`), "for harvesters"]] : []),
    ...(set.atom ? [["Atom feed", address(`${set.name}/feed.atom`), "for feed readers"]] : []),
    ...(set.iiif ? [["activities of IIIF", address(`${set.name}/activities`), "for IIIF aggregators"]] : []),
  ];
  the.documents.append(...[...documents, ...views].map(([name, href, what]) =>
    make.li({}, make.a({ href }, name), make.span({ className: "help" }, what), make.span({ className: "help count" }))));
  documents.forEach(async ([, href], at) => {
    if (!href.endsWith(".xml") && !href.endsWith("resourcesync")) return;
    const answer = await send("HEAD", href, { headers: { Accept: "application/xml" } }).catch(() => null);
    const time = answer?.headers.get("last-modified");
    if (time) the.documents.children[at].children[1].append(make.time({ dateTime: new Date(time).toISOString(), title: time }, ` · ${ago(time)}`));
  });
}

/** How much is in each, by the status of the set. */
export function countDocuments(status) {
  documents.forEach(([, , , count], at) => {
    if (count && status.changes !== null) the.documents.children[at].lastChild.textContent = count(status);
  });
}
