/** Programs that follow a set, or publish to it, to be copied. Nothing here knows the page.
 *
 * Each is `[language, what, text, request?]`: a request is what the page itself can send to show the answer.
 */

const inShell = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** `secret` is the token that is filled in, if one is. */
export function programsOf({ hub, set, channel, list, sample, isPrivate, secret = "" }) {
  const given = secret ? `export RSNOTIFY_TOKEN=${inShell(secret)}\n` : "";
  const bearer = '-H "Authorization: Bearer $RSNOTIFY_TOKEN"';
  const activate = ". .venv/bin/activate  # in a clone, after make run\n";
  const reads = isPrivate ? given : ""; // it needs no token where everybody may read
  const asReader = isPrivate ? ` ${bearer}` : "";
  const ownToken = JSON.stringify(secret || "YOUR TOKEN");
  const change = { loc: sample, change: "updated" };
  const publish = `${hub}/api/sets/${set}/changes`;
  return [
    ["curl", "follow", `${reads}curl -N${asReader} -H "Accept: text/event-stream" \\
  ${channel}`, { method: "GET", url: channel, headers: { Accept: "text/event-stream" } }],
    ["curl", "publish", `${given}curl ${bearer} \\
  -H "Content-Type: application/json" \\
  -H "Idempotency-Key: $(date +%s%N)" \\
  -d '{"loc": "${sample}", "change": "updated"}' \\
  ${publish}`, { method: "POST", url: publish, headers: { "Content-Type": "application/json" }, body: JSON.stringify(change) }],
    ["JavaScript", "follow, in a web page", `import { follow } from "${hub}/static/client/rsnotify.js";

for await (const { change, loc } of follow("${list}"${isPrivate ? `, { token: ${ownToken} }` : ""})) {
  console.log(change, loc);
}`],
    ["Python", "follow", `from rsnotify_client import follow

for change in follow("${list}"${isPrivate ? `, token=${ownToken}` : ""}):
    print(change.change, change.loc, flush=True)`],
    ["Python", "publish", `${secret ? "" : "import os\n"}from rsnotify_client import Publisher

with Publisher("${hub}", ${secret ? ownToken : 'os.environ["RSNOTIFY_TOKEN"]'}) as publisher:
    publisher.updated("${set}", "${sample}")`],
    ["Command line", "follow", `${reads}${activate}rsnotify subscribe ${set} --url ${hub}`],
    ["Command line", "publish", `${given}${activate}rsnotify publish ${set} ${sample} --url ${hub}`],
    ["Command line", "keep a copy", `${reads}${activate}rsnotify mirror ${list} copy`],
    ["WebSub", "subscribe; CALLBACK is your address", `${reads}curl${asReader} -d hub.mode=subscribe --data-urlencode "hub.callback=$CALLBACK" \\
  --data-urlencode hub.topic=${channel} ${hub}/hub`],
  ];
}
