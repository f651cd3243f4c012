// The same children of the root as `xml.js` gives, by the browser's own parser.
//
// A DOMParser takes a whole document, so nothing is known before its end. What is no document of ours
// is not given to it: it makes a page with a style of what it cannot read, and where the policy of a
// web page allows no styles, browsers complain of that in their console.

import { Rejected } from "./errors.js";

const TEXTS = [3, 4]; // text and CDATA
const ROOT = /<(?:[^\s<>/:]+:)?(?:urlset|sitemapindex)[\s/>]/;

export class DomReader {
  root = undefined;

  #pieces = [];

  feed(text) {
    this.#pieces.push(text);
    return [];
  }

  close() {
    const text = this.#pieces.splice(0).join("");
    if (/<!DOCTYPE/i.test(text)) {
      throw new Rejected("a DOCTYPE is not accepted: ResourceSync documents have none");
    }
    if (!ROOT.test(text)) throw new Rejected("it has no element urlset or sitemapindex");
    const parsed = new DOMParser().parseFromString(text, "application/xml");
    const error = parsed.querySelector("parsererror");
    if (error) throw new Rejected(`not well-formed XML: ${error.textContent.trim().slice(0, 200)}`);
    this.root = nameOf(parsed.documentElement);
    return Array.from(parsed.documentElement.children, nodeOf);
  }
}

function nodeOf(element) {
  return { ...leafOf(element), children: Array.from(element.children, leafOf) };
}

function leafOf(element) {
  const texts = Array.from(element.childNodes).filter((node) => TEXTS.includes(node.nodeType));
  const attributes = Array.from(element.attributes, (each) => [nameOf(each), each.value]);
  return {
    name: nameOf(element),
    attributes: Object.fromEntries(attributes.filter(([name]) => !name.includes("/xmlns/}"))),
    text: texts.map((node) => node.data).join(""),
    children: [],
  };
}

function nameOf({ namespaceURI, localName }) {
  return namespaceURI ? `{${namespaceURI}}${localName}` : localName;
}
