// By which transport a channel is read: the one that was chosen, or the first that passes.

import { openChannel, refusal } from "./channel.js";
import { Rejected, TryAgain } from "./errors.js";
import { openPolls } from "./polls.js";

export const TRANSPORTS = ["websocket", "sse", "long-poll"];
const GATEWAY = [undefined, 502, 504]; // no answer, or one of something that stands between

/**
 * What `openChannel` gives. With `isCut`, as what is on the way has brought nothing of the others
 * again and again, long polls are tried first.
 */
export async function openTransport(web, url, standing, options) {
  const { transport, isCut } = options;
  const polls = () => openPolls(web, url, standing(), refusal);
  if (transport === "long-poll") return polls();
  if (transport !== undefined) return openChannel(web, url, standing, options);
  const found = isCut ? await polls().catch(ignoreBarred) : undefined;
  if (found) return found;
  try {
    return await openChannel(web, url, standing, options);
  } catch (error) {
    if (isCut || !isBarred(error) || web.signal?.aborted) throw error;
    return polls().catch((other) => {
      throw isBarred(other) && other instanceof Rejected ? error : other;
    });
  }
}

function ignoreBarred(error) {
  if (!isBarred(error)) throw error;
}

/** Whether no hub has answered that it refuses. */
function isBarred(error) {
  if (error instanceof TryAgain) return GATEWAY.includes(error.status);
  return error instanceof Rejected && !error.isOfHub;
}
