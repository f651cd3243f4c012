/** XML as text for people: nothing here knows the page. */

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
