// Follows an address and prints a line of JSON for each thing that it is told.
//
//   node reader.mjs MODULE URL [OPTIONS AS JSON]
//
// The option WebSocket is the file of a package that has one; `tokens` is where a token is fetched.

const [module, url, options = "{}"] = process.argv.slice(2);
const { follow } = await import(module);

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const told = {
  onState: ({ state, position, transport, error }) =>
    say({ state, position, transport, error: error?.message }),
};
const { tokens, ...given } = JSON.parse(options);
if (given.onGap) given.onGap = (gap) => say({ gap });
if (tokens) given.token = async () => tokenIn(await fetch(tokens));
if (given.WebSocket) given.WebSocket = (await import(given.WebSocket)).default;

async function tokenIn(answer) {
  if (!answer.ok) throw new Error(`the token service says ${answer.status}`);
  return answer.text();
}

try {
  for await (const change of follow(url, { ...told, ...given })) say({ change });
} catch (error) {
  say({ failed: error.name, message: error.message });
}
