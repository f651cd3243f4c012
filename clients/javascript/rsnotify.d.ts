/** A link of a change: a related resource. */
export interface Link {
  readonly rel?: string;
  readonly href?: string;
  readonly modified?: string;
  readonly hash?: string;
  readonly length?: number;
  readonly type?: string;
  readonly pri?: number;
  readonly path?: string;
  readonly encoding?: string;
  readonly [attribute: string]: unknown;
}

/** What a Source told of one resource. */
export interface Change {
  readonly loc: string;
  /** Always one of these for a Source that keeps to the specification. */
  readonly change?: "created" | "updated" | "deleted";
  readonly datetime?: string;
  readonly lastmod?: string;
  readonly hash?: string;
  readonly length?: number;
  readonly type?: string;
  readonly encoding?: string;
  readonly changefreq?: string;
  readonly priority?: number;
  /** Of framework channels: what kind of document has changed. */
  readonly capability?: string;
  readonly links: readonly Link[];
}

/** A change, and from where to go on when it has been dealt with. */
export interface FollowedChange extends Change {
  /** Give this as the option `position`; undefined while the state is read. */
  readonly position: string | undefined;
  /** Whether it is no change, but a resource as it was when the state was read. */
  readonly isState?: true;
}

/** The changes of one notification, or of a stretch of a Change List. */
export interface Notification {
  /** The XML as it came; empty for what came by a long poll, or from a Change List. */
  readonly payload: string;
  /** The changes are all those after `from`, up to and including `until`. */
  readonly from: string;
  readonly until: string;
  readonly timed: readonly { readonly position: string; readonly change: Change }[];
  /** Whether the peer itself said the interval; version 0.8 does not. */
  readonly joins: boolean;
}

/** Changes that cannot be had: neither the channel nor a Change List tells them. */
export interface Gap {
  /** The position after which they were. */
  readonly from: string | undefined;
  /** Where following goes on, if the peer says it. */
  readonly until: string | undefined;
  readonly reason: string;
}

/** How the connection stands. */
export interface State {
  readonly state: "live" | "catching-up" | "waiting";
  /** Up to here everything was handed on. */
  readonly position: string | undefined;
  /** When live: how changes come. */
  readonly transport?: "websocket" | "sse" | "long-poll" | "polling";
  /** When waiting: why, and for how many seconds. */
  readonly error?: { readonly name: string; readonly message: string };
  readonly seconds?: number;
}

/** A WebSocket of the platform, or of a package that looks like it. */
export type WebSocketClass = new (url: string, protocols?: string[]) => {
  onopen: unknown;
  onmessage: unknown;
  onclose: unknown;
  onerror: unknown;
  close(): void;
};

/** A token, or a function that is asked for one before the one in use ends. */
export type Token = string | (() => string | Promise<string>);

export interface FollowOptions {
  /** That of the last change that was dealt with. Without it, or with null: from now on. */
  position?: string | null;
  /** Without a `position`: first all resources as they are, then every change since. */
  state?: boolean;
  /** Aborting it ends the loop. */
  signal?: AbortSignal;
  /** A token that may read; shown to the origin of the address only. */
  token?: Token;
  /**
   * How a channel is read: by this, and no other. Without it by the first that passes: a WebSocket,
   * an event stream, the long polls of a hub.
   */
  transport?: "websocket" | "sse" | "long-poll";
  /** Only resources whose `loc` begins so; a hub sends no others. One of several may fit. */
  prefix?: string | readonly string[];
  /** Only resources of this media type, or `image/*`, in a set that allows it. */
  type?: string | readonly string[];
  /** Only changes of this kind, and deletions. */
  change?: ("created" | "updated" | "deleted") | readonly ("created" | "updated" | "deleted")[];
  /** Only resources with a link of this `href` and `rel: "collection"`, in a set that allows it. */
  collection?: string | readonly string[];
  /** Told of changes that cannot be had; then it goes on. Without it, `HistoryGone` is thrown. */
  onGap?: (gap: Gap) => void;
  /** Told whenever the connection changes. */
  onState?: (state: State) => void;
  /** Share one connection with the other tabs of this site that follow the same address. */
  shared?: boolean;
  /** How often Change Lists are asked for where there is no channel; 60, at most 1,000,000. */
  pollSeconds?: number;
  /** After how many seconds without a message a WebSocket is checked; 90, at most 1,000,000. */
  quietSeconds?: number;
  /** In place of the platform's. */
  WebSocket?: WebSocketClass;
  /** In place of the platform's. */
  fetch?: typeof fetch;
}

/**
 * Every change of a Source, once and in order, as it happens.
 *
 * `url` is its site, its Source Description, a Capability List, a channel, a `ws://` address.
 */
export function follow(
  url: string | URL,
  options?: FollowOptions,
): AsyncGenerator<FollowedChange, void, void>;

/** The same, notification by notification. */
export function notifications(
  url: string | URL,
  options?: FollowOptions,
): AsyncGenerator<Notification, void, void>;

/** A change to be published. */
export interface NewChange {
  loc: string;
  change: "created" | "updated" | "deleted";
  lastmod?: string;
  datetime?: string;
  hash?: string;
  length?: number;
  type?: string;
  encoding?: string;
  changefreq?: string;
  priority?: number;
  links?: readonly Link[];
  /** Framework changes only. */
  capability?: string;
  index?: string;
}

export interface PublishOptions {
  /** A token that may publish. */
  token?: Token;
  /** Publish changes of capability documents, not of resources. */
  framework?: boolean;
  /** The idempotency key; without it, a random one. Keep it to repeat after a crash. */
  key?: string;
  /** Aborting it ends it with the signal's reason. */
  signal?: AbortSignal;
  /** How long it is tried; 60. */
  giveUpSeconds?: number;
  /** In place of the platform's. */
  fetch?: typeof fetch;
}

/** Where the published changes stand in the set's journal. */
export interface Accepted {
  readonly accepted: number;
  readonly from: string;
  readonly until: string;
}

/** Publish one change or several, all or nothing; repeated with one key until it is answered. */
export function publish(
  url: string,
  set: string,
  changes: NewChange | readonly NewChange[],
  options?: PublishOptions,
): Promise<Accepted>;

/** An entry of a ResourceSync document. */
export interface Entry {
  readonly loc: string;
  readonly lastmod?: string;
  readonly changefreq?: string;
  readonly priority?: string;
  readonly md: Readonly<Record<string, string | number | undefined>>;
  readonly links: readonly Link[];
}

/** A ResourceSync document. */
export interface ResourceSyncDocument {
  readonly root: "urlset" | "sitemapindex";
  readonly md: Readonly<Record<string, string | number | undefined>>;
  readonly links: readonly Link[];
  readonly entries: readonly Entry[];
}

/** Read a document of any version; throws `Rejected` if it is none. */
export function parseDocument(text: string): ResourceSyncDocument;

/** Another try would end the same. */
export class Rejected extends Error {
  readonly status?: number;
  readonly closeCode?: number;
  /** What is wrong with each published change. */
  readonly faults: readonly { index?: number; field?: string; message: string }[];
}

/** Another try may succeed, not before `retryAfter` seconds. */
export class TryAgain extends Error {
  readonly status?: number;
  readonly retryAfter: number;
}

/** Nothing that the Source offers tells all that followed `from`. */
export class HistoryGone extends Error {
  readonly from: string | undefined;
  readonly reason: string;
}
