/** The operator's figures; for the admin sets, tokens and WebSub subscriptions. */

import { ask, get, setPath } from "./api.js";
import { isMeant, notDone, unlessUndone } from "./asking.js";
import { button, copyable, counted, foreign, make, number, row, submits, table, say, the } from "./dom.js";
import { rights, set } from "./here.js";
import { readersOf, watch } from "./status.js";

const ROWS = 100;

const tokens = table(the.tokens, "Tokens", "id", "note", "may", "sets", "last used", "expires", "actions");
const subscriptions = table(the.subscriptions, "WebSub subscriptions",
  "callback", "channel", "behind", "last answer", "next attempt", "actions");
const [answer, made] = [the["admin-answer"], the["made-token"]];
const form = the["edit-set"].elements;
let edited = set?.name; // the form shows this set: any other must be new
let turn = 0; // an older answer changes nothing

const look = () => watch(() => (edited ? { limit: 1, name: edited } : { limit: 1 }), (status) => {
  if (!status) return;
  showHub(status);
  showUsage(status.sets.find(({ name }) => name === edited));
});
look();
the.admin.hidden = !rights.admin;
the["not-admin"].hidden = rights.admin;
if (rights.admin) {
  form.name.value = set?.name ?? "";
  form.describedby.value = set?.describedby ?? "";
  form.max_bytes.value = set?.max_bytes ?? "";
  form.private.checked = set?.private;
  sayWhatWasNotDone();
  addEventListener("pageshow", sayWhatWasNotDone);
  show();
}

function sayWhatWasNotDone() {
  const words = notDone();
  if (words) say(answer, `Not done, because the page was left before: ${words}`, true);
}

function showHub({ rates, store, following, warnings = [], processes = [], websub }) {
  const figures = [
    ["store", store.text],
    ...warnings.map((each) => ["warning", each]),
    ["following", following.text],
    ...Object.entries(rates),
    ...Object.entries(websub?.subscribers ?? {}).map(([place, count]) => [`WebSub subscribers ${place}`, count]),
    ["oldest undelivered change, seconds", websub?.oldest_undelivered_seconds ?? 0],
    ...processes.map(({ name, ready, reason }) => [`process ${name}`, ready ? "ready" : reason]),
  ];
  the.numbers.replaceChildren(...figures.flatMap(([name, value]) => [
    make.dt({}, name.replaceAll("_", " ")), make.dd({}, typeof value === "number" ? number(value) : value)]));
}

/** What the set takes of Redis, and may take. */
function showUsage(found) {
  const most = found?.max_bytes ? ` of the ${number(found.max_bytes)} that it may take` : "";
  the.usage.textContent = found ? `${found.name} takes ${number(found.bytes)} bytes of Redis${most}.` : "";
}

async function show() {
  turn += 1;
  const mine = turn;
  try {
    const [those, subscribed] = await Promise.all([get("api/tokens"), get("api/subscriptions")]);
    if (mine !== turn) return;
    draw(tokens, those.map(tokenRow), "tokens");
    draw(subscriptions, subscribed.map(subscriptionRow), "subscriptions");
  } catch ({ message }) {
    if (mine === turn) say(answer, `The tables could not be read: ${message}`, true);
  }
}

function draw(body, rows, command) {
  body.replaceChildren(...rows.slice(0, ROWS));
  const text = !rows.length ? "none"
    : rows.length > ROWS && `${number(rows.length - ROWS)} more: \`rsnotify ${command} list\` lists all`;
  if (text) body.append(make.tr({}, make.td({ colSpan: 7 }, text)));
}

async function act(words, work, place = answer) {
  try {
    const done = await work();
    say(place, `${words}: done.`);
    show();
    return done;
  } catch ({ message }) {
    say(place, `${words}: ${message}`, true);
  }
}

const action = (text, name, work) => button(text, name, () => act(`${text} ${name}`, work));

const undoable = (text, name, work) =>
  button(text, name, () => unlessUndone(text, name, () => act(`${text} ${name}`, work)));

submits(the["edit-set"], ({ name: { value: name }, private: isPrivate, describedby, max_bytes: most }) => {
  const options = {
    private: isPrivate.checked,
    describedby: describedby.value || null,
    max_bytes: Number(most.value) || null,
  };
  act(`Save ${name}`, () => save(name, options));
});

async function save(name, options) {
  if (name === edited) await ask("PATCH", setPath(name), options);
  else {
    const { length } = await get("api/sets", { name });
    if (length) throw new Error(`${name} is there already: choose it in the Overview to edit it`);
    await ask("PUT", setPath(name), options);
  }
  edited = name;
  look();
}

the.remove.onclick = async () => {
  const name = form.name.value;
  if (!form.name.reportValidity()) return;
  const lost = await lossOf(name).catch(({ message }) => say(answer, `Remove ${name}: ${message}`, true));
  if (!lost || !await isMeant(`Remove the set ${name}?`, lost, "Remove it", name)) return;
  act(`Remove ${name}`, async () => {
    await ask("DELETE", setPath(name));
    if (name === edited) edited = undefined;
    look();
  });
};

async function lossOf(name) {
  const { sets: [found] } = await get("api/status", { name, limit: 1 });
  if (!found) throw new Error("there is no such set");
  const { resources } = await get(`${setPath(name)}/resources`);
  return `All its changes are lost at once and for good, and what the hub knows of ${counted(resources, "resource")}. Its
    documents and channels end, for ${counted(readersOf(found), "reader")} that ${readersOf(found) === 1 ? "is" : "are"} connected now, and for
    its WebSub subscribers.`;
}

function tokenRow({ id, note = "", rights: may = ["publish"], sets, used, expires }) {
  const path = `api/tokens/${id}`;
  return row(id, foreign(note), may.join(", "), sets.join(" "), day(used), day(expires), [
    button("Replace", id, () => makeToken(`Replace ${id}`, () => ask("POST", `${path}/rotate`, {}))), " ",
    button("Replace now", id, async () => {
      const lost = `The token for ${sets.join(" ")}${note && ` (${note})`} ends at once, also where it is in use. If it
        has not leaked, “Replace” leaves a day to change it there.`;
      if (!await isMeant(`Replace the token ${id} now?`, lost, "End it now")) return;
      makeToken(`Replace ${id} now`, () => ask("POST", `${path}/rotate`, { grace_seconds: 0 }));
    }), " ",
    undoable("Revoke", id, () => ask("DELETE", path))]);
}

submits(the["new-token"], async ({ sets, publish, read, note, expires }) => {
  const content = {
    sets: sets.value.split(/[\s,]+/).filter(Boolean),
    rights: [publish, read].filter(({ checked }) => checked).map(({ name }) => name),
    note: note.value,
    expires_days: Number(expires.value) || null,
  };
  if (await makeToken("Make a token", () => ask("POST", "api/tokens", content))) the["new-token"].reset();
});

async function makeToken(words, work) {
  const found = await act(words, work, made);
  if (found) made.append(copyable("It is shown this once", found.token));
  return found;
}

function subscriptionRow({ id, callback, set: name, kind, behind_seconds: behind, last_answer: last, failures, next_attempt: next }) {
  const path = `api/subscriptions/${id}`;
  return row(foreign(callback), `${name} ${kind}`, behind === null ? "the set is gone" : `${Math.round(behind)} s`,
    foreign(`${last ?? "none yet"}${failures ? ` (${failures} failures)` : ""}`), next ? day(next) : "", [
      action("Retry", callback, () => ask("POST", `${path}/retry`)), " ",
      undoable("End", callback, () => ask("DELETE", path))]);
}

const day = (datetime) => (datetime ? new Date(datetime).toLocaleString("sv") : "never");
