/** The options of a set, as a form: what was changed is sent, so that nobody's other choice is taken back. */

import { ask, get, setPath } from "./api.js";
import { make, number, submits } from "./dom.js";
import { blame, field, forgive } from "./fields.js";

const LEAST_BYTES = 1024 * 1024;
const MOST_BYTES = 2 ** 50;

const box = (name, label, help, isOn = false) => ({ name, label, help, usual: isOn, type: "checkbox" });
const address = (name, label, help) => ({ name, label, help, usual: null, inputMode: "url", spellcheck: false });

const GROUPS = [
  ["", [
    box("private", "Private", "Reading it needs a token."),
    { name: "title", label: "Title", help: "What people call it. Empty: its name.", usual: null, maxLength: 200 },
    address("license", "License", "The address of the licence that its resources have."),
    address("describedby", "Described by", "The address of a document that describes the set."),
    { name: "max_bytes", label: "Bytes that it may take of Redis", type: "number", min: LEAST_BYTES, max: MOST_BYTES, usual: null,
      help: `From ${number(LEAST_BYTES)}. Empty: half of what Redis may take, if that has a limit. Beyond it, what is published here is refused.` },
  ]],
  ["Ways to read it", [
    box("atom", "Atom feed", "Its changes can be read as a feed.", true),
    box("oai", "OAI-PMH", "It can be harvested, if the hub has an admin's address.", true),
    box("tombstones", "Tombstones", "Harvesters get its deletions for ever."),
    box("filters", "Filters", "Readers may ask for media types and collections."),
    box("sockets_first", "WebSockets first", "For Destinations that know version 0.8 only."),
    { name: "iiif", label: "To IIIF, its resources are", help: "So that its changes can be read as activities.", usual: null,
      choices: [["", "nothing"], ["Manifest", "manifests"], ["Collection", "collections"]] },
  ]],
  ["Documents of the Source's own, named instead of the hub's", [
    address("resourcelist", "Resource List", ""),
    address("changelist", "Change List", ""),
    address("changelist_archive", "Change List Archive", ""),
  ]],
  ["Documents of the Source's own, named beside the hub's", [
    address("resourcedump", "Resource Dump", ""),
    address("changedump", "Change Dump", ""),
    address("resourcelist_archive", "Resource List Archive", ""),
    address("resourcedump_archive", "Resource Dump Archive", ""),
    address("changedump_archive", "Change Dump Archive", ""),
  ]],
  ["Channels of the Source's own", [
    address("topic", "Topic of changes", "What the Source calls the hub's channel in WebSub."),
    address("framework_topic", "Topic of new documents", "Likewise, of the framework channel."),
    address("change_notification", "Channel of changes elsewhere", "Named instead of the hub's: a WebSocket, or a WebSub topic."),
    address("framework_notification", "Channel of new documents elsewhere", "Likewise."),
    address("channel_hub", "Its WebSub hub", "Where one subscribes to the topics elsewhere."),
  ]],
];
const NAME = { name: "name", label: "Name", help: "Of a-z 0-9 - _ . and it begins with a letter or a digit.", maxLength: 64,
  required: true, pattern: "[a-z0-9][a-z0-9._\\-]*", spellcheck: false };

/** For this set, or for a new one; `done` gets its name once it is stored, or nothing if it is left as it was. */
export function setForm(record, done) {
  const title = record ? `Edit ${record.name}` : "Add a set";
  const [first, ...others] = GROUPS.map(([heading, options]) => group(heading, options, record));
  const form = make.form({ className: "options", autocomplete: "off", ariaLabel: title }, make.h3({}, title),
    ...(record ? [] : [fieldOf(NAME)]), first, ...others, make.output({}),
    make.div({ className: "row" }, make.button({}, "Save"), make.button({ type: "button", onclick: () => done() }, "Cancel")));
  submits(form, async (elements) => {
    const name = record?.name ?? elements.name.value;
    try {
      await save(name, chosen(elements, record), record);
      forgive(form);
      done(name);
    } catch ({ message }) {
      blame(form, message);
    }
  });
  return form;
}

function group(heading, options, record) {
  const fields = make.div({ className: "grid" }, ...options.map((option) => fieldOf(option, record)));
  if (!heading) return fields;
  const isUsed = options.some(({ name, usual }) => record && record[name] !== usual);
  return make.details({ open: isUsed }, make.summary({}, heading), fields);
}

function fieldOf({ name, label, help, usual, choices, ...properties }, record) {
  const value = record?.[name] ?? usual;
  const input = choices
    ? make.select({}, ...choices.map(([each, text]) => make.option({ value: each, selected: each === (value ?? "") }, text)))
    : make.input({ ...properties, checked: value === true, value: value ?? "" });
  return field({ name, label, help, input });
}

/** The options that differ from what they were. */
function chosen(elements, record) {
  const found = {};
  for (const { name, usual, type } of GROUPS.flatMap(([, options]) => options)) {
    const input = elements[name];
    const value = type === "checkbox" ? input.checked : (type === "number" && Number(input.value)) || input.value.trim() || null;
    if (value !== (record?.[name] ?? usual)) found[name] = value;
  }
  return found;
}

async function save(name, options, record) {
  if (record) {
    await ask("PATCH", setPath(name), options);
    return;
  }
  const { length } = await get("api/sets", { name });
  if (length) throw new Error(`The name ${name} is taken: there is such a set already.`);
  await ask("PUT", setPath(name), options);
}
