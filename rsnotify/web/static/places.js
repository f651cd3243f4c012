/** Where in a document the elements stand that a verdict names by their paths. Nothing here knows the page. */

const MARKUP = /<!--[^]*?-->|<!\[CDATA\[[^]*?\]\]>|<\?[^]*?\?>|<(\/?)([^\s/>!?]+)((?:"[^"]*"|'[^']*'|[^"'>])*?)(\/?)>/g;
const STEP = /\/([^/[]+)(?:\[(?:(\d+)|@rel='([^']*)')\])?/g;
const RELATION = /\srel\s*=\s*(?:"([^"]*)"|'([^']*)')/;
const IN_WORDS = /\bline (\d+)(?:, column (\d+))?/g;

const local = (name) => name.slice(name.indexOf(":") + 1);

/** The paths of an element and of all around it, the outermost first: every step by its number, or by its relation. */
function stepsOf(path) {
  const steps = [""];
  for (const [, name, number = 1, relation] of path.split("/@")[0].matchAll(STEP)) {
    steps.push(`${steps.at(-1)}/${local(name)}[${relation === undefined ? number : `@${relation}`}]`);
  }
  return steps.slice(1);
}

/** `{line, column, begin, end}` of what each violation is about, or of the nearest around it; undefined if it is nowhere. */
export function placesOf(text, violations) {
  const named = violations.map(({ path }) => stepsOf(path));
  const found = new Map([...new Set(named.flat())].map((path) => [path, undefined]));
  walk(text, found);
  return violations.map(({ path, message }, at) => {
    const element = named[at].map((each) => found.get(each)).findLast(Boolean);
    if (!element) return inWords(text, message);
    return path.includes("/@") ? attributeIn(text, element, path.split("/@")[1]) : element;
  });
}

/** Fill in the places of those paths that are there. What is not well-formed ends it. */
function walk(text, found) {
  const open = [{ path: "", counts: {} }];
  let [line, newline, counted] = [1, -1, 0];
  for (const tag of text.matchAll(MARKUP)) {
    const [all, isEnd, name, attributes, isEmpty] = tag;
    if (!name) continue;
    if (isEnd) {
      if (open.length > 1) open.pop();
      continue;
    }
    const { path, counts } = open.at(-1);
    const step = local(name);
    counts[step] = (counts[step] ?? 0) + 1;
    const relation = RELATION.exec(attributes);
    const numbered = `${path}/${step}[${counts[step]}]`;
    for (const each of [numbered, ...(relation ? [`${path}/${step}[@${relation[1] ?? relation[2]}]`] : [])]) {
      if (!found.has(each)) continue;
      for (let at = text.indexOf("\n", counted); at !== -1 && at < tag.index; at = text.indexOf("\n", at + 1)) [line, newline] = [line + 1, at];
      counted = Math.max(counted, newline + 1);
      found.set(each, { line, column: tag.index - newline, begin: tag.index, end: tag.index + all.length }); // of two the later
    }
    if (!isEmpty) open.push({ path: numbered, counts: {} });
  }
}

function attributeIn(text, element, name) {
  const tag = text.slice(element.begin, element.end);
  const place = new RegExp(`(?<=\\s)(?:[\\w.-]+:)?${RegExp.escape?.(name) ?? name.replace(/\W/g, "\\$&")}\\s*=\\s*(?:"[^"]*"|'[^']*')`).exec(tag);
  if (!place) return element; // it is missing
  const lines = tag.slice(0, place.index).split("\n");
  const [line, column] = [element.line + lines.length - 1, lines.length > 1 ? lines.at(-1).length + 1 : element.column + place.index];
  return { line, column, begin: element.begin + place.index, end: element.begin + place.index + place[0].length };
}

/** The last place that the words of a parser name. */
function inWords(text, message) {
  const words = [...message.matchAll(IN_WORDS)].at(-1);
  if (!words) return undefined;
  const [line, column] = [Number(words[1]), Number(words[2] ?? 1)];
  const lines = text.split("\n");
  if (!(line - 1 in lines)) return undefined;
  const start = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
  return { line, column, begin: start, end: start + lines[line - 1].length };
}
