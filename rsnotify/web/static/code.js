/** Code as people read it: the parts of a program that are told apart, an entry of a list line by line. Nothing here knows the page. */

const STRING = String.raw`"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'`;
const PARTS = { // of each language: what each part looks like, the first that fits
  shell: { comment: /(?<=^|\s)#.*/, string: STRING, name: /\$\w+|\$\([^)]*\)/, word: /(?<=\s)--?[A-Za-z][\w-]*/ },
  javascript: { comment: /\/\/.*/, string: STRING, word: /\b(?:import|from|for|await|const|of)\b/ },
  python: { comment: /#.*/, string: STRING, word: /\b(?:import|from|for|in|with|as|True)\b/ },
  json: { name: String.raw`"(?:\\.|[^"\\])*"(?=:)`, string: STRING, word: /-?\b\d[\d.eE+-]*|\b(?:true|false|null)\b/ },
  xml: { comment: /<!--[^]*?-->|<\?[^]*?\?>/, word: /<\/?[\w:.-]+|\/?>/, name: /\b[\w:.-]+(?==["'])/, string: /"[^"<]*"|'[^'<]*'/ },
};

const PATTERNS = Object.fromEntries(Object.entries(PARTS).map(([language, parts]) => [language, new RegExp(
  Object.entries(parts).map(([kind, part]) => `(?<${kind}>${part.source ?? part})`).join("|"), "gm")]));

/** `[kind, text]` of all parts, which together are the text; what has no kind is plain. */
export function partsOf(text, language) {
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(PATTERNS[language])) {
    if (found.index > end) parts.push(["", text.slice(end, found.index)]);
    parts.push([Object.entries(found.groups).find(([, part]) => part !== undefined)[0], found[0]]);
    end = found.index + found[0].length;
  }
  return end < text.length ? [...parts, ["", text.slice(end)]] : parts;
}

/** The first entry of a list, with each tag on a line of its own. */
export function entryIn(xml) {
  let depth = 0;
  const entry = /<url>.*?<\/url>/s.exec(xml)?.[0] ?? "";
  return entry.replace(/>\s*</g, ">\n<").split("\n").map((line) => {
    if (line.startsWith("</")) depth -= 1;
    const indented = "  ".repeat(depth) + line;
    if (/^<[^/]*[^/]>$/.test(line)) depth += 1;
    return indented;
  }).join("\n");
}
