// Numbers, sizes, times, as people read them.
const WHOLE = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
const STEPS = [
  [86400, "d"],
  [3600, "h"],
  [60, "min"],
  [1, "s"],
];

export const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** 12,345; a dash for what is not known. */
export const count = (value) => (isNumber(value) ? WHOLE.format(value) : "–");

/** 1.2K/s. */
export function rate(value) {
  if (!isNumber(value)) return "–";
  return `${Math.abs(value) >= 1000 ? SHORT.format(value) : WHOLE.format(Math.round(value * 10) / 10)}/s`;
}

/** 1.5 MiB. */
export function bytes(value) {
  if (!isNumber(value)) return "–";
  let rest = value;
  let unit = 0;
  while (rest >= 1024 && unit < UNITS.length - 1) {
    rest /= 1024;
    unit += 1;
  }
  return `${WHOLE.format(Math.round(rest * 10) / 10)} ${UNITS[unit]}`;
}

/** 3 min; 2 h 5 min. Of milliseconds. */
export function duration(ms) {
  if (!isNumber(ms)) return "–";
  let rest = Math.max(0, Math.round(ms / 1000));
  const parts = [];
  for (const [size, unit] of STEPS) {
    const whole = Math.floor(rest / size);
    rest -= whole * size;
    if (whole && parts.length < 2) parts.push(`${whole} ${unit}`);
    else if (parts.length) break;
  }
  return parts.join(" ") || "0 s";
}

/** The whole date and time, for a title. */
export const moment = (ms) => (isNumber(ms) ? new Date(ms).toLocaleString("sv") : "");

/** A value in a table cell: text as it is, the rest as JSON. */
export const plain = (value) => (typeof value === "string" ? value : value === undefined ? "–" : JSON.stringify(value));

/** The rate beside a count; undefined when the broker does not tell. */
export const rateOf = (stats, name) => stats && stats[`${name}_details`] && stats[`${name}_details`].rate;

/** What a text of JSON says; undefined: it is none. */
export function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** How much of a limit is used; `shown`: how both are written. */
export const ofLimit = (used, limit, shown) => (limit > 0 ? `${shown(used)} of ${shown(limit)}` : shown(used));

/** One and several. */
export const several = (number, one, more = one.endsWith("y") ? `${one.slice(0, -1)}ies` : `${one}s`) => `${count(number)} ${number === 1 ? one : more}`;
