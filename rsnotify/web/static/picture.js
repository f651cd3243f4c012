/** The picture of a set: each change is a dot, and this page's own line can be cut. */

import { counted, the } from "./dom.js";
import { holds } from "./dots.js";
import * as following from "./following.js";
import { set } from "./here.js";
import { ownLine } from "./own_line.js";

const { picture, dots, cut, missing, work } = the;
const [mine, ...others] = picture.querySelectorAll(".way");
holds(the.still, dots);

const line = ownLine(set.name, { picture, dots, own: () => mine, others: () => others, cut, missing, work, five: the.try });
export const { arrived, gap, joined } = line;

export function seen(newest, readers) {
  the.others.textContent = counted(Math.max(0, readers - (following.isLost ? 0 : 1)), "reader");
  line.seen(newest);
}
