// What the types must allow, and what they must refuse; checked by tsc, never run.

import {
    follow,
    HistoryGone,
    notifications,
    parseDocument,
    publish,
    Rejected,
    TryAgain,
} from "rsnotify";
import type { FollowedChange, Gap, Notification, Token } from "rsnotify";

export async function allowed(signal: AbortSignal): Promise<string | undefined> {
    let position: string | undefined;
    const onGap = (gap: Gap) => console.log(gap.from, gap.until, gap.reason);
    for await (const change of follow(new URL("http://a/"), {
        position: localStorage.getItem("position"),
        signal,
        shared: true,
        onGap,
    })) {
        const known: FollowedChange = change;
        if (known.change === "deleted") position = known.position;
    }
    for await (const { timed, until } of notifications("ws://a/", { transport: "sse" })) {
        position = timed[0]?.position ?? until;
    }
    for await (const _ of follow("http://a/", { token: async () => "t" })) break;
    const token: Token = () => "t";
    const { accepted, until } = await publish(
        "http://a/",
        "set",
        [{ loc: "http://a/", change: "created" }],
        { key: "k", token },
    );
    const [entry] = parseDocument("<urlset/>").entries;
    console.log(accepted + 1, until, entry?.md.change, entry?.changefreq, entry?.priority);
    return position;
}

export function told(error: unknown): string | undefined {
    if (error instanceof Rejected) return error.faults[0]?.message ?? String(error.status);
    if (error instanceof TryAgain) return `${error.retryAfter} s`;
    return error instanceof HistoryGone ? error.reason : undefined;
}

// @ts-expect-error: an address is needed
follow();
// @ts-expect-error: no such transport
follow("http://a/", { transport: "pigeon" });
// @ts-expect-error: no such change
publish("http://a/", "set", { loc: "http://a/", change: "moved" });
// @ts-expect-error: what was told is not to be changed
export const change = (told: Notification) => (told.until = "");
