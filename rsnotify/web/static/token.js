/**
 * The token of this tab: in `sessionStorage` only, sent in a header only. One that came in the fragment of the
 * address, which a browser sends to nobody, is kept and taken out of the address before anything else is done.
 */

const KEY = "rsnotify-token";
const GIVEN = "#token=";

export const token = () => sessionStorage.getItem(KEY) ?? "";

/** Throws if it cannot be sent. */
function keep(secret) {
  if (/[^!-~]/.test(secret)) throw new Error("This is no token: a token has no spaces and only plain characters.");
  if (secret) sessionStorage.setItem(KEY, secret);
  else sessionStorage.removeItem(KEY);
}

/** Open the page anew with this token, or with none; there `why` is said. */
export function change(secret, why = "") {
  keep(secret);
  history.replaceState(why, "");
  location.reload();
}

/** Whether the address had a token, which is kept. */
export function takeFromAddress() {
  if (!location.hash.startsWith(GIVEN)) return false;
  const given = location.hash.slice(GIVEN.length);
  history.replaceState(history.state, "", location.pathname + location.search);
  try {
    keep(decodeURIComponent(given));
    return true;
  } catch {
    return false; // it is none
  }
}

takeFromAddress();
