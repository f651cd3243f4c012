/** The token of this tab: in `sessionStorage` and in headers only. One in the address is taken out first. */

const KEY = "rsnotify-token";
const GIVEN = "#token=";

export const token = () => sessionStorage.getItem(KEY) ?? "";

function keep(secret) {
  if (/[^!-~]/.test(secret)) throw new Error("A token has no spaces and only plain characters.");
  if (secret) sessionStorage.setItem(KEY, secret);
  else sessionStorage.removeItem(KEY);
}

/** Open the page anew, which says `why`. */
export function change(secret, why = "") {
  keep(secret);
  history.replaceState(why, "");
  location.reload();
}

export function takeFromAddress() {
  if (!location.hash.startsWith(GIVEN)) return false;
  const given = location.hash.slice(GIVEN.length);
  history.replaceState(history.state, "", location.pathname + location.search);
  try {
    keep(decodeURIComponent(given));
    return true;
  } catch {
    return false;
  }
}

takeFromAddress();
