/** What of a document a tree of the Source follows. Nothing here knows the page. */

export const MOST = 60; // documents of a tree: no more entries of one are listed
const CHILDREN = 5; // of an index
export const ABOVE = ["description", "capabilitylist"]; // what names other documents, besides an index

/** Of the description the chosen set, of its index the description that names it, of another index the newest.
 *
 * `set` has the address that the set's documents begin with, `below`, and that of the description `above` it.
 */
export function chosen(entries, { root, capability }, set) {
  if (capability === "description" && set) return entries.filter(({ loc }) => loc.startsWith(set.below) || loc === set.above);
  return ABOVE.includes(capability) && root === "urlset" ? entries.slice(0, MOST) : entries.slice(-CHILDREN);
}
