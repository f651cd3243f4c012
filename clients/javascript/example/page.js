// Follows the address that is entered and lists what changes, the newest first.

import { follow } from "../rsnotify.js";

const SHOWN = 100;
const [form, status, list] = ["form", "[role=status]", "ol"].map((name) =>
  document.querySelector(name),
);
let following = new AbortController();

form.onsubmit = async (event) => {
  event.preventDefault();
  following.abort();
  following = new AbortController();
  list.replaceChildren();
  await show(form.elements.url.value, following.signal).catch((error) => {
    status.textContent = error.message;
  });
};

async function show(url, signal) {
  const onState = ({ state, transport, error }) => {
    status.textContent = [state, transport, error?.message].filter(Boolean).join(": ");
  };
  const onGap = ({ from, until }) => add(`changes between ${from} and ${until} cannot be had`);
  for await (const { change, loc, position } of follow(url, {
    signal,
    shared: true,
    onState,
    onGap,
  })) {
    add(`${position} ${change} ${loc}`);
  }
}

function add(text) {
  const item = document.createElement("li");
  item.textContent = text;
  list.prepend(item);
  if (list.children.length > SHOWN) list.lastChild.remove();
}
