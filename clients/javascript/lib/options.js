// The options that there are: one that is misspelt is refused, for without its `position` a reader
// would silently begin elsewhere. An option that is undefined counts as left out.

import { Rejected } from "./errors.js";

const ASKED = ["token", "signal", "fetch"];
const FILTERS = ["prefix", "type", "change", "collection"];
const PLACE = ["position", "state", "onGap", "onState"];
const CONNECTION = ["transport", "shared", "pollSeconds", "quietSeconds", "WebSocket"];

export const FOLLOW_OPTIONS = [...PLACE, ...FILTERS, ...CONNECTION, ...ASKED];
export const PUBLISH_OPTIONS = ["framework", "key", "giveUpSeconds", ...ASKED];

export function checkOptions(options, known) {
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || known.includes(name)) continue;
    throw new Rejected(`there is no option ${name}: there are ${known.join(", ")}`);
  }
}
