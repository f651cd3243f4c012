/**
 * Requests to the hub. An answer that is an error is thrown, with what its problem document says.
 */

import { token } from "./token.js";

export const HOME = new URL("..", import.meta.url);

/** An address of this hub, also where a proxy has put it into a folder. */
export const address = (path) => new URL(path.replace(/^\//, ""), HOME).href;

export const channelOf = (set, kind = "change") =>
  address(`channels/${encodeURIComponent(set)}/${kind}_notification_channel`);

export class Refused extends Error {
  #secret;

  constructor(status, detail, secret) {
    super(detail);
    this.status = status;
    this.#secret = secret;
  }

  /** Whether the token that this tab uses now is not accepted: not one that was used before. */
  get isOfToken() {
    return this.status === 401 && this.#secret === token();
  }
}

/** Any request to this hub, with the token of this tab, which no other origin is shown. */
export async function send(method, url, { body, headers = {}, signal } = {}) {
  if (new URL(url, HOME).origin !== HOME.origin) throw new Refused(0, "this is not an address of this hub");
  const secret = token();
  const bearer = secret ? { Authorization: `Bearer ${secret}` } : {};
  const options = { method, body, headers: { ...headers, ...bearer }, signal, cache: "no-store" };
  let answer;
  try {
    answer = await fetch(url, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "the hub does not answer", secret);
  }
  if (!answer.ok) throw new Refused(answer.status, await reason(answer), secret);
  return answer;
}

/** A request of the API, in JSON; what was answered. */
export async function ask(method, path, content) {
  const options = content === undefined ? {} : {
    body: JSON.stringify(content), headers: { "Content-Type": "application/json" },
  };
  const answer = await send(method, address(path), options);
  return answer.headers.get("content-type")?.includes("json") ? answer.json() : null;
}

/** A document of this hub, as XML. */
export async function read(url) {
  return (await send("GET", url, { headers: { Accept: "application/xml" } })).text();
}

async function reason(answer) {
  if (answer.status === 401 && !token()) return "a token is needed: give it above";
  try {
    return (await answer.json()).detail;
  } catch {
    return `the hub answered ${answer.status}`;
  }
}
