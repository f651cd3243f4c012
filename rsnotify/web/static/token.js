/**
 * The token of this tab: in `sessionStorage` only, sent in a header only, never in an address.
 */

const KEY = "rsnotify-token";

export const token = () => sessionStorage.getItem(KEY) ?? "";

export function keep(secret) {
  if (secret) sessionStorage.setItem(KEY, secret);
  else sessionStorage.removeItem(KEY);
}
