// The part of a Source that a reader wants: asked for at a hub, and left of what others send.
//
// A hub sends no more than that over a channel, or in its Change Lists (docs/filters.md). What comes
// from another Source is held against the same here: where nobody knows what a resource was before,
// its update is left, too, because it may have been wanted.

import { Rejected } from "./errors.js";

const NAMES = ["change", "collection", "prefix", "type"]; // as a canonical query has them
const FORMER = "urn:rsnotify:former";
const CHANNEL = /^ws(s?):\/\/(.+)\/channels\/([^/]+)\/change_notification_channel$/;

export class Wanted {
  #values = {};

  constructor(options = {}) {
    for (const name of NAMES) {
      const given = [options[name] ?? []].flat();
      if (!given.every((each) => each && typeof each === "string")) {
        throw new Rejected(`${name} is ${options[name]}: give a text, or an array of some`);
      }
      if (given.length) this.#values[name] = [...new Set(given)].sort();
    }
  }

  /** `name=value&…`; one for all that mean the same. */
  get key() {
    return new URLSearchParams(this.#pairs).toString();
  }

  get #pairs() {
    return Object.entries(this.#values).flatMap(([name, all]) => all.map((each) => [name, each]));
  }

  /** The address of a channel, from which only that is wanted. */
  asked(url) {
    if (!this.#pairs.length) return url;
    const address = new URL(url);
    for (const [name, value] of this.#pairs) address.searchParams.append(name, value);
    return address.href.replaceAll("%3A", ":");
  }

  /** The address of a Change List; one of the hub's whose channel this is, for what is wanted. */
  askedOfHub(channel, url) {
    const [, secure, base, set] = CHANNEL.exec(channel ?? "") ?? [];
    const lists = `http${secure}://${base}/${set}/changelist`;
    return [".xml", "/"].some((end) => url.startsWith(lists + end)) ? this.asked(url) : url;
  }

  /** What is wanted of what is received; its interval stays. */
  leftOf(received) {
    if (!this.#pairs.length || !received.timed.length) return received;
    const timed = received.timed.filter(({ change }) => this.#takes(change));
    return timed.length === received.timed.length ? received : { ...received, timed };
  }

  #takes({ loc, change, type, links = [] }) {
    const { prefix, change: kinds, type: types, collection } = this.#values;
    if (prefix && !prefix.some((each) => loc.startsWith(each))) return false;
    const isGone = change === "deleted";
    const isKind = isGone || !kinds || kinds.includes(change);
    if (!types && !collection) return isKind;
    const said = links.filter(({ rel }) => rel === FORMER);
    if (said.length && this.#fits(said.find((each) => each.type)?.type, hrefs(said, loc))) {
      return true;
    }
    if (isGone) return !said.length;
    const isIn = links.filter(({ rel }) => rel?.toLowerCase() === "collection");
    if (isKind && this.#fits(type, hrefs(isIn))) return true;
    return !said.length && change === "updated"; // it may have been wanted before
  }

  #fits(mediaType, collections) {
    const { type: types, collection } = this.#values;
    const isIn = !collection || collection.some((each) => collections.includes(each));
    return isIn && (!types || types.some((each) => isOf(each.toLowerCase(), mediaType)));
  }
}

function hrefs(links, loc) {
  return links.map(({ href }) => href).filter((href) => href !== loc);
}

function isOf(range, mediaType = "") {
  const essence = mediaType.split(";")[0].trim().toLowerCase();
  return range.endsWith("/*") ? essence.startsWith(range.slice(0, -1)) : essence === range;
}
