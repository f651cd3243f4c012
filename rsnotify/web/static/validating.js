/**
 * The validator: a document of this hub, one that is named, or one that was pasted.
 */

import { address, send } from "./api.js";
import { byId, element, tell } from "./dom.js";

export function watchForm() {
  const form = byId("validate");
  byId("own").onchange = () => fetchOwn(form);
  form.onsubmit = async (event) => {
    event.preventDefault();
    tell(byId("verdict"), "checking…");
    byId("violations").replaceChildren();
    try {
      const named = form.address.value.trim();
      if (named) await check("application/json", JSON.stringify({ url: named }));
      else await check("application/xml", form.document.value);
    } catch (error) {
      tell(byId("verdict"), error.message, true);
    }
  };
}

async function fetchOwn(form) {
  if (!byId("own").value) return;
  form.address.value = "";
  try {
    form.document.value = await (await send("GET", byId("own").value)).text();
    tell(byId("verdict"), "");
  } catch (error) {
    form.document.value = "";
    tell(byId("verdict"), `This document cannot be had: ${error.message}`, true);
  }
}

async function check(type, body) {
  const headers = { "Content-Type": type };
  const answer = await send("POST", address("api/validate"), { body, headers });
  const { valid, count, violations } = await answer.json();
  tell(byId("verdict"), valid ? "Valid: nothing is wrong with it." : found(count, violations.length), !valid);
  byId("violations").replaceChildren(...violations.map(shown));
}

function found(count, named) {
  const told = `${count.toLocaleString("en")} violation${count === 1 ? "" : "s"}`;
  return count > named ? `${told}; the first ${named.toLocaleString("en")}:` : `${told}:`;
}

const shown = ({ path, message, clause, mend }) => element("li", {},
  element("strong", { textContent: message }), ` ${mend} `,
  element("span", { className: "help", textContent: `${clause}, at ${path}` }));
