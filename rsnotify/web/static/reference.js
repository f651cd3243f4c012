/** The reference of the HTTP API: its contents are searched, its requests sent. Without scripts it is a page to read. */

import { get, HOME } from "./api.js";
import { isMeant } from "./asking.js";
import { counted, make, number, say, submits, the } from "./dom.js";
import { field } from "./fields.js";
import { token } from "./token.js";

const SAFE = ["get", "head"]; // others are sent after a question
const MOST_CHARACTERS = 64 * 1024; // of an answer that are shown
const MOST_MS = 10_000; // a channel does not end by itself

// --- the contents ---

const contents = document.querySelector(".contents");
const links = [...contents.querySelectorAll("li a")];
const find = make.input({ type: "search", placeholder: "find", ariaLabel: "Find in the contents" });
const found = make.output({});
const finding = make.form({}, find, found);
the.finding.append(finding);

find.oninput = () => {
  const wanted = find.value.trim().toLowerCase();
  for (const each of links) {
    each.parentElement.hidden = !`${each.textContent} ${each.dataset.said ?? ""}`.toLowerCase().includes(wanted);
  }
  for (const each of contents.querySelectorAll("section")) each.hidden = !each.querySelector("li:not([hidden])");
  const left = links.filter(({ parentElement }) => !parentElement.hidden).length;
  say(found, !wanted ? "" : left ? `${left} found` : "Nothing has this in it.");
};
submits(finding, () => links.find(({ parentElement }) => !parentElement.hidden)?.click());

/** The contents go along with what is read: its link is in their middle if it was out of sight. */
function reach(link) {
  if (!link?.offsetParent) return; // it is not among those that are found
  const [at, frame] = [link.getBoundingClientRect(), contents.getBoundingClientRect()];
  if (at.top < frame.top || at.bottom > Math.min(frame.bottom, innerHeight)) contents.scrollTop += at.top - frame.top - frame.height / 2;
}

const inSight = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) for (const each of links) each.ariaCurrent = each.hash === `#${target.id}` ? "location" : null;
  }
  reach(contents.querySelector("[aria-current]"));
}, { rootMargin: "0px 0px -85% 0px" });
for (const each of document.querySelectorAll(".operation")) inSight.observe(each);

const reveal = () => document.getElementById(location.hash.slice(1))?.closest("details")?.setAttribute("open", "");
addEventListener("hashchange", reveal);
reveal();

// --- requests ---

const { paths } = await get("api/openapi.json");
for (const place of document.querySelectorAll(".example")) {
  const { method, path } = place.dataset;
  place.append(sender(method, path, paths[path][method]));
}

function sender(method, path, operation) {
  const { parameters, requestBody, responses } = operation;
  const [kinds, forms] = [Object.keys(requestBody?.content ?? {}), Object.keys(responses[200]?.content ?? {})];
  const first = parameters.filter(({ in: where }) => where === "path").map(fieldOf);
  const more = parameters.filter(({ in: where }) => where !== "path").map(fieldOf);
  if (forms.length > 1) more.push(choice("accept", "Accept", ["", ...forms]));
  if (kinds.length) more.push(...bodyOf(requestBody, kinds));
  const answer = make.output({});
  const form = make.form({ ariaLabel: `Send ${method.toUpperCase()} ${path}` }, ...first,
    ...(more.length ? [make.details({}, make.summary({}, counted(more.length, "more field")), ...more)] : []),
    make.div({ className: "row" }, make.button({}, "Send"), make.span({ className: "help" }, ...withToken())), answer);
  submits(form, async (elements) => {
    const asked = request(method, path, operation, elements);
    const words = `${method.toUpperCase()} ${decodeURI(asked.url.pathname)}`;
    if (!SAFE.includes(method) && !await isMeant(`Send ${words}?`, `${plain(operation.summary)}. This hub does it.`, "Send it")) return;
    await show(asked, form, answer);
  });
  return form;
}

/** What the document says, which marks code as Markdown does. */
function plain(text = "") {
  return text.replaceAll("`", "");
}

function withToken() {
  return token() ? ["with the token of this tab"]
    : ["without a token: ", make.a({ href: new URL("?view=admin", HOME).href }, "use one on the page")];
}

function fieldOf({ name, in: where, required, schema, example }) {
  const inputName = `${where}-${name}`;
  if (schema.enum) return choice(inputName, name, required ? schema.enum : ["", ...schema.enum], plain(schema.description));
  const value = [example ?? ""].flat().join(" ");
  const input = make.input({ required: Boolean(required), value, spellcheck: false });
  const help = [plain(schema.description), isSeveral(schema) ? "Several are separated by spaces." : ""].filter(Boolean).join(". ");
  return field({ name: inputName, label: name, help, input });
}

function isSeveral({ type }) {
  return type === "array";
}

function choice(name, label, values, help) {
  return field({ name, label, help, input: make.select({}, ...values.map((each) => make.option({ value: each }, each || "–"))) });
}

function bodyOf({ content }, kinds) {
  const text = (kind) => {
    const { example = "" } = content[kind];
    if (kind.endsWith("urlencoded")) return String(new URLSearchParams(example));
    return typeof example === "string" ? example : JSON.stringify(example, null, 2);
  };
  const body = make.textarea({ rows: 5, spellcheck: false, value: text(kinds[0]) });
  const kind = choice("kind", "Content-Type", kinds);
  kind.querySelector("select").onchange = ({ target }) => { body.value = text(target.value); };
  return [kind, field({ name: "body", label: "Body", input: body })];
}

/** What is sent; no other origin ever gets it, since the path begins at this hub. */
function request(method, path, { parameters }, elements) {
  const [query, headers] = [new URLSearchParams(), new Headers()];
  let filled = path.slice(1);
  for (const { name, in: where, schema } of parameters) {
    const { value } = elements[`${where}-${name}`];
    if (where === "path") filled = filled.replace(`{${name}}`, encodeURIComponent(value));
    else if (where === "query") {
      for (const each of isSeveral(schema) ? value.split(/\s+/) : [value]) if (each) query.append(name, each);
    }
    else if (value) headers.set(name, value);
  }
  if (token()) headers.set("Authorization", `Bearer ${token()}`);
  if (elements.accept?.value) headers.set("Accept", elements.accept.value);
  if (elements.kind) headers.set("Content-Type", elements.kind.value);
  const url = new URL(filled, HOME);
  url.search = query;
  return { url, method: method.toUpperCase(), headers, body: elements.body?.value || undefined };
}

async function show({ url, ...options }, form, answer) {
  const begun = performance.now();
  form.querySelector("pre")?.remove();
  say(answer, "Sending…");
  try {
    const signal = AbortSignal.timeout(MOST_MS);
    const got = await fetch(url, { ...options, signal, cache: "no-store" });
    const took = Math.max(1, Math.round(performance.now() - begun));
    const { text, cut } = await readSome(got);
    say(answer, `${got.status} ${got.statusText}, after ${number(took)} ms${cut}`, !got.ok);
    const head = [...got.headers].map(([name, value]) => `${name}: ${value}`).join("\n");
    form.append(make.pre({ tabIndex: 0, role: "region", ariaLabel: "The answer" }, `${head}\n\n${pretty(text)}`));
  } catch ({ name }) {
    say(answer, name === "TimeoutError" ? "No answer within ten seconds." : "The hub does not answer.", true);
  }
}

async function readSome(got) {
  const reader = got.body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { done, value } = await reader?.read() ?? { done: true };
      if (done) return { text, cut: "" };
      text += value;
      if (text.length <= MOST_CHARACTERS) continue;
      reader.cancel();
      return { text: text.slice(0, MOST_CHARACTERS), cut: `; only its first ${number(MOST_CHARACTERS)} characters are shown` };
    }
  } catch {
    return { text, cut: "; more would come: it was left after ten seconds" };
  }
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
