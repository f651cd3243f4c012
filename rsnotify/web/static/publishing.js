/**
 * The form that publishes one change, and says when it came back over the channel.
 */

import { ask, setPath } from "./api.js";
import { byId, tell } from "./dom.js";

let waiting = null; // for the change that was published last: `{by, until, begun}`
const answer = byId("publish").querySelector(".answer");

/** The channel that is followed has moved on, or another one is followed. */
export function look(following) {
  if (!waiting) return;
  const { by, until, begun } = waiting;
  const isSame = by === following;
  const hasCome = isSame && by.cursor >= until;
  if (hasCome || !isSame) waiting = null;
  if (hasCome) tell(answer, `It arrived ${Math.max(1, Math.round(performance.now() - begun))} ms after you pressed Publish.`);
  else if (!isSame) tell(answer, "Stored. It is not seen here, because another set was chosen.");
  else if (by.isLost) tell(answer, "Stored. It is not seen here while the channel is not connected.");
  else tell(answer, "Stored. Waiting for it on the channel…");
}

/** `followed()` is the channel that is followed now. */
export function watchForm(followed) {
  byId("publish").onsubmit = async (event) => {
    event.preventDefault();
    const { loc, change } = event.target;
    const [begun, by] = [performance.now(), followed()];
    try {
      waiting = null;
      tell(answer, "Sending…");
      const { until } = await ask("POST", `${setPath(by.set)}/changes`, { loc: loc.value, change: change.value });
      waiting = { by, until, begun };
      look(followed());
    } catch (error) {
      tell(answer, `Not published: ${error.message}`, true);
    }
  };
}
