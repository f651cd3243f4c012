/**
 * A notification or a Change List: its interval, and its changes.
 */

const TERMS = "http://www.openarchives.org/rs/terms/";
const SITEMAP = "http://www.sitemaps.org/schemas/sitemap/0.9";

/** Throws if the text is neither. The newest list of a set is open: it has no `until`. */
export function parse(xml) {
  const root = new DOMParser().parseFromString(xml, "application/xml").documentElement;
  const md = [...root.children].find((child) => child.localName === "md");
  if (root.localName !== "urlset" || !md?.getAttribute("from")) throw new Error("this is not a notification");
  return {
    from: md.getAttribute("from"),
    until: md.getAttribute("until"),
    changes: [...root.getElementsByTagNameNS(SITEMAP, "url")].map(change),
  };
}

function change(url) {
  const md = url.getElementsByTagNameNS(TERMS, "md")[0];
  return {
    loc: url.getElementsByTagNameNS(SITEMAP, "loc")[0]?.textContent.trim() ?? "",
    change: md?.getAttribute("change") ?? "",
    datetime: md?.getAttribute("datetime") ?? "",
  };
}
