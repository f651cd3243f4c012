/** ResourceSync documents, as far as the page shows them. */

const TERMS = "http://www.openarchives.org/rs/terms/";

export const childrenOf = (parent, ...names) => [...parent.children].filter(({ localName }) => names.includes(localName));
export const ofTerms = (parent, name) => childrenOf(parent, name).filter(({ namespaceURI }) => namespaceURI === TERMS);
export const textOf = (parent, name) => childrenOf(parent, name)[0]?.textContent.trim() ?? "";

export const mdOf = (parent) =>
  Object.fromEntries([...(ofTerms(parent, "md")[0]?.attributes ?? [])].map(({ name, value }) => [name, value]));

/** The root; throws if this is another kind of document. */
export function rootOf(xml) {
  const root = new DOMParser().parseFromString(xml, "application/xml").documentElement;
  if (!["urlset", "sitemapindex"].includes(root.localName)) throw new Error("this is no ResourceSync document");
  return root;
}

/** Of a notification or a Change List; an open list has no `until`. */
export function parse(xml) {
  const root = rootOf(xml);
  const { from, until } = mdOf(root);
  if (!from) throw new Error("this is not a notification");
  const changes = childrenOf(root, "url").map((entry) => ({ change: "", datetime: "", ...mdOf(entry), loc: textOf(entry, "loc") }));
  return { from, until, changes };
}
