/**
 * The form that publishes one change, and says when it came back over the channel.
 */

import { ask, setPath } from "./api.js";
import { byId, tell } from "./dom.js";

let waiting = null; // for the change that was published last: `{by, until, settle}`

/** The channel that is followed has moved on, or another one is followed. */
export function look(following) {
  if (!waiting) return;
  const { by, until, settle } = waiting;
  if (by !== following) settle("another set was chosen");
  else if (by.cursor >= until) settle("");
  else if (by.isLost) settle("the channel is not connected");
}

/** `followed()` is the channel that is followed now. */
export function watchForm(followed) {
  byId("publish").onsubmit = async (event) => {
    event.preventDefault();
    const { loc, change, lastElementChild: answer } = event.target;
    const [begun, by] = [performance.now(), followed()];
    try {
      tell(answer, "Sending…");
      const { until } = await ask("POST", `${setPath(by.set)}/changes`, { loc: loc.value, change: change.value });
      tell(answer, "Stored. Waiting for it on the channel…");
      const why = await new Promise((settle) => {
        waiting = { by, until, settle };
        look(followed());
      });
      if (why) tell(answer, `Stored. It is not seen here, because ${why}.`, true);
      else tell(answer, `It arrived ${Math.max(1, Math.round(performance.now() - begun))} ms after you pressed Publish.`);
    } catch (error) {
      tell(answer, `Not published: ${error.message}`, true);
    }
  };
}
