// Columns of tables: a title, and below it a field of each row.
import { html } from "./lib.js";
import { bytes, count, duration, plain, rate } from "./format.js";
import { Ago, Badge, Table } from "./parts.js";

/** Shown in wide windows only; and only when it is chosen. */
export const [WIDE, EXTRA] = [{ isWide: true }, { isExtra: true }];

export const asIs = (value) => value;
export const named = (value) => html`<span class="name">${value}</span>`;
export const code = (value) => html`<code>${plain(value)}</code>`;
export const bold = (value) => html`<b>${plain(value)}</b>`;
export const table = (value) => html`<${Table} value=${value} empty="" />`;
export const ago = (ms) => html`<${Ago} ms=${ms} />`;
export const yesNo = (value) => (value ? "yes" : "no");
export const orNone = (value) => (value ? count(value) : "none");
export const number = (value) => value;
const NUMBERS = [bytes, count, duration, number, orNone, rate];

/** The value of a row: `field` may name parts of parts. */
export const at = (row, field) => field.split(".").reduce((value, word) => value?.[word], row);

/** What tells rows apart: `fields`, with spaces between them. */
export const keyBy = (fields) => (row) => fields.split(" ").map((field) => at(row, field)).join("\n");

/** `shown(value, row)`: how a value is written. `field`: what the column sorts by, too, unless a table is shown. */
export const column = (title, field, shown = named, more = {}) => ({ title, sort: shown === table ? "" : field, isNumber: NUMBERS.includes(shown), cell: (row) => shown(at(row, field), row), ...more });

/** Of a consumer, as lists of consumers have it. */
export const OF_CONSUMER = [
  column("Tag", "consumer_tag"),
  column("Prefetch", "prefetch_count", orNone),
  column("Acknowledges", "ack_required", yesNo, WIDE),
  column("Active", "active", (isActive, one) => (isActive ? "yes" : one.activity_status || "no")),
  column("Exclusive", "exclusive", yesNo, WIDE),
  column("Arguments", "arguments", table, WIDE),
];
export const OF_VHOST = column("Virtual host", "vhost", named, WIDE);

/** What is special about a queue, in few letters, with words as their titles. */
export function Features({ queue }) {
  const { arguments: given = {}, leveret = {} } = queue;
  const has = (key) => `x-${key}` in given;
  const of = (key) => given[`x-${key}`];
  return [
    [queue.type !== "classic", queue.type, `queue type ${queue.type}`],
    [queue.durable, "D", "durable: outlives a restart"],
    [queue.auto_delete, "AD", "auto-delete: goes with its last consumer"],
    [queue.exclusive, "Excl", "exclusive: of one connection"],
    [has("message-ttl"), "TTL", `messages expire after ${of("message-ttl")} ms`],
    [has("expires"), "Exp", `goes when unused for ${of("expires")} ms`],
    [has("max-length") || has("max-length-bytes"), "Lim", "limited in length"],
    [has("ring-size"), "Ring", `keeps the newest ${of("ring-size")}`],
    [has("dead-letter-exchange"), "DLX", `dead letters go to ${of("dead-letter-exchange")}`],
    [has("max-priority"), "Pri", "has priorities"],
    [has("single-active-consumer"), "SAC", "one consumer is active at a time"],
    [queue.policy, queue.policy, "policy", "policy"],
    [queue.operator_policy, queue.operator_policy, "operator policy", "policy"],
    [!["running", "live"].includes(queue.state), queue.state, "state", "warning"],
    [leveret.enabled === false, "disabled", "takes no messages", "warning"],
    [leveret.paused, "paused", "delivers nothing", "warning"],
  ].filter(([isSo]) => isSo).map(([, text, title, kind]) => html`<${Badge} key=${text} text=${text} title=${title} kind=${kind} />`);
}
