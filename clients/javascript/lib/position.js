// A position: a UTC time in microseconds, always as `2026-11-20T21:34:00.123456Z`.
//
// In this one form positions compare as texts do. A JavaScript Date would lose the microseconds.

const W3C =
  /^(\d{4})(?:-(\d\d)(?:-(\d\d)(?:T(\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?(?:Z|([+-])(\d\d):(\d\d)))?)?)?$/;

/** The position of a W3C datetime of any granularity; undefined if it is none. */
export function positionOf(text) {
  const found = W3C.exec(text?.trim() ?? "");
  if (!found) return undefined;
  const [, year, month = "01", day = "01", hour = "00", minute = "00", second = "00"] = found;
  const [fraction = "", sign, hours, minutes] = found.slice(7);
  const written = `${year}-${month}-${day}T${hour}:${minute}:${second}`;
  const local = Date.parse(`${written}Z`);
  if (Number.isNaN(local) || !new Date(local).toISOString().startsWith(written)) return undefined;
  const offset = sign ? Number(`${sign}1`) * (hours * 60 + Number(minutes)) * 60_000 : 0;
  const utc = new Date(local - offset).toISOString();
  if (utc.length !== 24 || hours > 23 || minutes > 59) return undefined;
  return `${utc.slice(0, 19)}.${fraction.slice(0, 6).padEnd(6, "0")}Z`;
}

/** The last moment that a position may mean: in whole seconds, any of its second. */
export function endOf(position) {
  return position?.replace(".000000Z", ".999999Z");
}

/** The later of two positions, either of which may be missing. */
export function later(one, other) {
  return other === undefined || one > other ? one : other;
}
