/**
 * The token of this tab: in `sessionStorage` only, sent in a header only, never in an address.
 */

const KEY = "rsnotify-token";

export const token = () => sessionStorage.getItem(KEY) ?? "";

/** Throws if it cannot be sent. */
export function keep(secret) {
  if (/[^!-~]/.test(secret)) throw new Error("this is no token: a token has no spaces and only plain characters");
  if (secret) sessionStorage.setItem(KEY, secret);
  else sessionStorage.removeItem(KEY);
}
