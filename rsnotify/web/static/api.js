/** Requests to the hub. A refusal is thrown, with what its problem document says. */

import { token } from "./token.js";

export const HOME = new URL("..", import.meta.url);

export const address = (path) => new URL(path, HOME).href;

export const SAMPLE = address("static/icon.svg"); // a resource that can be fetched

export const setPath = (set) => `api/sets/${encodeURIComponent(set)}`;

export const channelOf = (set, kind = "change") => address(`channels/${set}/${kind}_notification_channel`);

export const SOURCE_DESCRIPTION = ["Source Description", address(".well-known/resourcesync")];

/** The documents of a set, each with its name and its address. */
export function documentsOf(set) {
  const documentOf = (name) => address(`${set}/${name}.xml`);
  return [
    ["Capability List", documentOf("capabilitylist")],
    ["Resource List", documentOf("resourcelist")],
    ["newest Change List", documentOf("changelist")],
    ["Change List Index", documentOf("changelist-index")],
    ["channel of changes", channelOf(set)],
    ["channel of new documents", channelOf(set, "framework")],
    ["changes as a Durable Stream", address(`streams/${set}`)],
  ];
}

const failure = (status, message, isOfToken = false) => Object.assign(new Error(message), { status, isOfToken });

/** Any request to this hub; no other origin gets the token. */
export async function send(method, url, { headers = {}, ...options } = {}) {
  if (new URL(url, HOME).origin !== HOME.origin) throw failure(0, "this is not an address of this hub");
  const secret = token();
  if (secret) headers.Authorization = `Bearer ${secret}`;
  const answer = await fetch(url, { ...options, method, headers, cache: "no-store" }).catch((error) => {
    throw error.name === "AbortError" ? error : failure(0, "the hub does not answer");
  });
  if (answer.ok) return answer;
  const { detail } = await answer.json().catch(() => ({ detail: `the hub answered ${answer.status}` }));
  const isRefused = answer.status === 401;
  throw failure(answer.status, isRefused && !secret ? "a token is needed: give it above" : detail, isRefused && secret !== "");
}

export async function ask(method, path, content) {
  const body = content && JSON.stringify(content);
  const answer = await send(method, address(path), { body, headers: body ? { "Content-Type": "application/json" } : {} });
  return answer.headers.get("content-type")?.includes("json") ? answer.json() : null;
}

export const get = (path, query) => ask("GET", query ? `${path}?${new URLSearchParams(query)}` : path);

export const read = async (url) => (await send("GET", url, { headers: { Accept: "application/xml" } })).text();
