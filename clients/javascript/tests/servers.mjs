// A Source in the test's own process: real HTTP, whose answers a test decides.

import { createServer } from "node:http";

const NS =
  'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"';

export const at = (second) => `2026-11-20T00:00:${String(second).padStart(2, "0")}.000000Z`;

/** A running server; `answers` has a function or a text for each path. */
export async function serve(answers) {
  const asked = [];
  const server = createServer(async (request, response) => {
    const { pathname, searchParams } = new URL(request.url, "http://a");
    const about = {
      path: pathname,
      from: searchParams.get("from"),
      query: request.url.split("?")[1],
      headers: request.headers,
      body: "",
    };
    asked.push(about);
    for await (const piece of request) about.body += piece;
    const answer = answers[pathname] ?? ((_, none) => none.writeHead(404).end());
    if (typeof answer === "function") answer(about, response);
    else response.writeHead(200, { "Content-Type": "application/xml" }).end(answer);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${server.address().port}`;
  const close = () => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
  return { url, asked, answers, close };
}

/** An answer that is an event stream: it begins at a position and has these notifications. */
export function stream(begins, ...payloads) {
  return (_, response) => {
    const told = begins ? { "Rsnotify-From": begins } : {};
    response.writeHead(200, { "Content-Type": "text/event-stream", ...told });
    response.flushHeaders();
    for (const payload of payloads) response.write(`data: ${payload}\n\n`);
  };
}

/** The same, and then the connection breaks. */
export function brokenStream(...words) {
  return (about, response) => {
    stream(...words)(about, response);
    setTimeout(() => response.destroy(), 20);
  };
}

export function answered(status, body = "", headers = {}) {
  return (_, response) => response.writeHead(status, headers).end(body);
}

export const changed = (second, loc = `http://a/${second}`) =>
  `<url><loc>${loc}</loc><rs:md change="updated" datetime="${at(second)}"/></url>`;

export function document(md, ...inner) {
  const attributes = Object.entries(md).map(([name, value]) => ` ${name}="${value}"`);
  return `<urlset ${NS}><rs:md${attributes.join("")}/>${inner.join("")}</urlset>`;
}

export const notification = (from, until, ...changes) =>
  document({ capability: "change-notification", from: at(from), until: at(until) }, ...changes);

export function index(capability, ...lists) {
  const entries = lists.map(([loc, md]) => `<sitemap><loc>${loc}</loc><rs:md ${md}/></sitemap>`);
  return `<sitemapindex ${NS}><rs:md capability="${capability}"/>${entries.join("")}</sitemapindex>`;
}

export function capabilities(...offers) {
  const entries = offers.map(
    ([loc, name]) => `<url><loc>${loc}</loc><rs:md capability="${name}"/></url>`,
  );
  return document({ capability: "capabilitylist" }, ...entries);
}

export const link = (rel, href) => `<rs:ln rel="${rel}" href="${href}"/>`;
