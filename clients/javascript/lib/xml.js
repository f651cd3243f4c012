// A streaming reader of exactly the XML that ResourceSync uses: no DTD, UTF-8, bounded sizes.
//
// Feed it text; it gives each child of the root once it is complete, as
// `{name: "{namespace}local", attributes, text, children}`. What lies deeper is read and dropped.
// What is not well-formed, endless or hostile ends the reading with `Rejected`.

import { Rejected } from "./errors.js";

export const TOKEN_CHARS = 8 * 1024; // a tag, a comment; also all text of one element
export const DEPTH = 32;
export const CHILDREN = 1_000; // of one entry

const XML_NS = "http://www.w3.org/XML/1998/namespace";
const NAMES = String.raw`[\p{L}_][\p{L}\p{N}\p{M}._·-]*(?::[\p{L}_][\p{L}\p{N}\p{M}._·-]*)?`;
const NAME = new RegExp(`^${NAMES}$`, "u");
const VALUE = String.raw`(?:"[^"<]*"|'[^'<]*')`;
const ATTRIBUTE = new RegExp(String.raw`\s+(${NAMES})\s*=\s*(${VALUE})`, "uy");
const TAG = /<([^"'>]*(?:"[^"]*"[^"'>]*|'[^']*'[^"'>]*)*)>/y;
const NO_CHARACTER = /[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]/;
const ENCODING = /\sencoding\s*=\s*["']([^"']*)/;
const ENCODINGS = /^(utf-?8|us-ascii|ascii)$/i;
const ENTITY = /&(?:(amp|lt|gt|quot|apos)|#(\d{1,7})|#x([\da-fA-F]{1,6}));|&/g;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'" };

const CLOSED_BY = [
  ["<!--", "-->"],
  ["<![CDATA[", "]]>"],
  ["<?", "?>"],
];

function unescape(text) {
  if (!text.includes("&")) return text;
  return text.replace(ENTITY, (whole, name, decimal, hexadecimal) => {
    if (name) return ENTITIES[name] ?? refuse(`the entity ${whole} is not defined`);
    const code = decimal ? Number(decimal) : parseInt(hexadecimal, 16);
    if (!decimal && !hexadecimal) refuse("an & begins no entity: write &amp;");
    const isCharacter = code > 0 && code <= 0x10ffff && !(code >= 0xd800 && code < 0xe000);
    const character = isCharacter ? String.fromCodePoint(code) : "\0";
    return NO_CHARACTER.test(character) ? refuse(`${whole} is no character of XML`) : character;
  });
}

function refuse(what) {
  throw new Rejected(`not well-formed XML: ${what}`);
}

export class XmlReader {
  /** The name of the root, once it is known. */
  root = undefined;

  #rest = "";
  #open = []; // of each open element: its tag as written, its namespaces, its node
  #done = [];
  #hasBegun = false;

  /** The children of the root that this text completes. */
  feed(text) {
    if (NO_CHARACTER.test(text)) refuse("it has a character that XML does not allow");
    if (!this.#hasBegun && text) text = this.#begin(text);
    this.#rest += text;
    let at = 0;
    for (let next; (next = this.#token(at)) !== undefined;) at = next;
    this.#rest = this.#rest.slice(at);
    if (this.#rest.length > TOKEN_CHARS)
      refuse(`a tag or a text exceeds ${TOKEN_CHARS} characters`);
    return this.#done.splice(0);
  }

  /** The last children; `Rejected` if the document is not whole. */
  close() {
    this.#text(this.#rest);
    if (this.root === undefined) refuse("it has no element");
    if (this.#open.length || this.#rest.includes("<")) refuse("it breaks off");
    return this.#done.splice(0);
  }

  #begin(text) {
    this.#hasBegun = true;
    return text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
  }

  /** Deal with what stands at this place; where the next begins, undefined if it is not whole. */
  #token(at) {
    const text = this.#rest;
    const tag = text.indexOf("<", at);
    if (tag > at) {
      this.#text(text.slice(at, tag));
      return tag;
    }
    if (tag < 0 || (text.length - tag < 9 && isBeginning(text.slice(tag)))) return undefined;
    const special = CLOSED_BY.find(([begin]) => text.startsWith(begin, tag));
    return special ? this.#special(tag, ...special) : this.#tag(tag);
  }

  #special(at, begin, ending) {
    const end = this.#rest.indexOf(ending, at + begin.length);
    if (end < 0) return undefined;
    const content = this.#rest.slice(at + begin.length, end);
    bounded(content);
    if (begin === "<![CDATA[") this.#characters(content);
    else if (begin === "<?") this.#instruction(content);
    else if (content.includes("--") || content.endsWith("-")) refuse("a comment contains --");
    return end + ending.length;
  }

  #instruction(content) {
    if (!/^xml\s/i.test(content)) return;
    const declared = ENCODING.exec(content)?.[1];
    if (declared && !ENCODINGS.test(declared)) {
      throw new Rejected(`the encoding ${declared} is not read: send UTF-8`);
    }
  }

  #tag(at) {
    const text = this.#rest;
    if (text.startsWith("<!", at)) {
      throw new Rejected("a DOCTYPE is not accepted: ResourceSync documents have none");
    }
    const inner = match(TAG, text.slice(at, at + TOKEN_CHARS))?.[1];
    if (inner === undefined) return undefined;
    if (inner.startsWith("/")) this.#end(inner.slice(1).trimEnd());
    else this.#start(inner);
    return at + inner.length + 2;
  }

  #start(inner) {
    if (this.#open.length === DEPTH) refuse(`elements are more than ${DEPTH} deep`);
    if (!this.#open.length && this.root !== undefined) refuse("it has a second root");
    const isEmpty = inner.endsWith("/");
    const tag = /^[^\s/]*/.exec(inner)[0];
    if (!NAME.test(tag)) refuse(`<${tag.slice(0, 80)}> has no name`);
    const written = attributesOf(inner.slice(tag.length, isEmpty ? -1 : undefined), tag);
    const namespaces = declaredIn(written, this.#open.at(-1)?.namespaces ?? { xml: XML_NS });
    const node = {
      name: expanded(tag, namespaces, namespaces[""]),
      attributes: unprefixed(written, namespaces),
      text: "",
      children: [],
    };
    this.#begun(node);
    this.#open.push({ tag, namespaces, node });
    if (isEmpty) this.#end(tag);
  }

  #begun(node) {
    if (!this.#open.length) this.root = node.name;
    if (this.#open.length !== 2) return;
    const parent = this.#open[1].node;
    if (parent.children.push(node) > CHILDREN)
      refuse(`an entry has more than ${CHILDREN} elements`);
  }

  #end(tag) {
    const { tag: opened, node } = this.#open.pop() ?? refuse(`</${tag}> closes nothing`);
    if (opened !== tag) refuse(`</${tag.slice(0, 80)}> closes <${opened}>`);
    if (this.#open.length === 1) this.#done.push(node);
  }

  #text(text) {
    if (text.includes("]]>")) refuse("a text contains ]]>");
    this.#characters(unescape(text));
  }

  #characters(text) {
    if (!this.#open.length) {
      if (text.trim()) refuse("there is text outside of the root element");
    } else if (this.#open.length <= 3) {
      const node = this.#open.at(-1).node;
      if (this.#open.length === 3) node.text = bounded(node.text + text);
    }
  }
}

function match(sticky, text, at = 0) {
  sticky.lastIndex = at;
  return sticky.exec(text);
}

/** Whether more must come to tell what this is. */
function isBeginning(text) {
  return [...CLOSED_BY, ["<!DOCTYPE"]].some(([begin]) => begin.startsWith(text));
}

function bounded(text) {
  if (text.length > TOKEN_CHARS) refuse(`a tag or a text exceeds ${TOKEN_CHARS} characters`);
  return text;
}

function attributesOf(text, tag) {
  const found = new Map();
  let at = 0;
  ATTRIBUTE.lastIndex = 0;
  for (let match; (match = ATTRIBUTE.exec(text)); at = ATTRIBUTE.lastIndex) {
    if (found.has(match[1])) refuse(`<${tag}> has ${match[1]} twice`);
    found.set(match[1], unescape(match[2].slice(1, -1).replace(/\r\n|[\t\r\n]/g, " ")));
  }
  if (text.slice(at).trim()) refuse(`<${tag}> has an attribute that cannot be read`);
  return found;
}

function declaredIn(attributes, outer) {
  const own = [...attributes].filter(([name]) => name === "xmlns" || name.startsWith("xmlns:"));
  if (!own.length) return outer;
  return { ...outer, ...Object.fromEntries(own.map(([name, uri]) => [name.slice(6), uri])) };
}

function expanded(name, namespaces, fallback) {
  const [prefix, local] = name.includes(":") ? name.split(":") : ["", name];
  if (!prefix) return fallback ? `{${fallback}}${local}` : local;
  if (!Object.hasOwn(namespaces, prefix)) refuse(`the prefix ${prefix} is not declared`);
  return `{${namespaces[prefix]}}${local}`;
}

function unprefixed(attributes, namespaces) {
  const found = {};
  for (const [name, value] of attributes) {
    if (name !== "xmlns" && !name.startsWith("xmlns:")) found[expanded(name, namespaces)] = value;
  }
  return found;
}
