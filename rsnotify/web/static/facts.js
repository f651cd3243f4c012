/** What is said of one resource, as a list to read: what, when, where. */

import { ago, counted, digest, foreign, listed, make, resource, size } from "./dom.js";

const WORDS = { type: "Type", encoding: "Encoding", changefreq: "Changes" };

/** `datetime` is when it changed; `href`, if there is one, the address of that change. */
export function showFacts(place, { datetime, lastmod, hash = "", length, links = [], ...rest }, href) {
  const time = datetime && make.time({ dateTime: datetime }, datetime);
  const facts = [
    ...(time ? [["When", href ? make.a({ href }, time) : time, ` · ${ago(datetime)}`]] : []),
    ...(lastmod && lastmod !== datetime ? [["Last modified", lastmod]] : []),
    ...hash.split(/\s+/).filter(Boolean).map((each) => ["Digest", digest(each)]),
    ...(length === undefined ? [] : [["Length", length < 1000 ? counted(length, "byte") : `${size(length)} (${counted(length, "byte")})`]]),
    ...Object.entries(rest).map(([name, value]) => [WORDS[name] ?? name, foreign(`${value}`)]),
    ...links.map(({ rel, href: to, ...more }) => [rel, resource(to), ` ${listed(more)}`]),
  ];
  place.append(...facts.flatMap(([name, ...said]) => [make.dt({}, name), make.dd({}, ...said)]));
}
