// Queues, and adding one. One queue has a file of its own.
import { html } from "../lib.js";
import { act, ask, path } from "../api.js";
import { bytes, count, rate, rateOf, several } from "../format.js";
import { Form } from "../form.js";
import { QUEUE_ARGUMENTS } from "../keys.js";
import { QueueLink } from "../links.js";
import { List } from "../list.js";
import { Ago, Badge, confirm, Danger, Fold, Table } from "../parts.js";
import { note, state } from "../state.js";

export { Queue } from "./queue.js";

const TYPED_ABOVE = 1000;

/** What is special about a queue, in few letters with words behind them. */
export function features(queue) {
  const { arguments: given = {}, leveret = {} } = queue;
  const found = [];
  if (queue.type !== "classic") found.push([queue.type, `queue type ${queue.type}`]);
  if (queue.durable) found.push(["D", "durable: outlives a restart"]);
  if (queue.auto_delete) found.push(["AD", "auto-delete: goes with its last consumer"]);
  if (queue.exclusive) found.push(["Excl", "exclusive: of one connection"]);
  if ("x-message-ttl" in given) found.push(["TTL", `messages expire after ${given["x-message-ttl"]} ms`]);
  if ("x-expires" in given) found.push(["Exp", `goes when unused for ${given["x-expires"]} ms`]);
  if ("x-max-length" in given || "x-max-length-bytes" in given) found.push(["Lim", "limited in length"]);
  if ("x-ring-size" in given) found.push(["Ring", `keeps the newest ${given["x-ring-size"]}`]);
  if ("x-dead-letter-exchange" in given) found.push(["DLX", `dead letters go to ${given["x-dead-letter-exchange"]}`]);
  if ("x-max-priority" in given) found.push(["Pri", "has priorities"]);
  if ("x-single-active-consumer" in given) found.push(["SAC", "one consumer is active at a time"]);
  if (queue.policy) found.push([queue.policy, "policy", "policy"]);
  if (queue.operator_policy) found.push([queue.operator_policy, "operator policy", "policy"]);
  if (!["running", "live"].includes(queue.state)) found.push([queue.state, "state", "warning"]);
  if (leveret.enabled === false) found.push(["disabled", "takes no messages", "warning"]);
  if (leveret.paused) found.push(["paused", "delivers nothing", "warning"]);
  return found;
}

export const Features = ({ queue }) => features(queue).map(([text, title, kind]) => html`<${Badge} key=${text} text=${text} title=${title} kind=${kind} />`);

const stats = (queue) => queue.message_stats || {};
const yesOrNo = (value) => (value ? "yes" : "no");
const COLUMNS = [
  { title: "Name", sort: "name", cell: (queue) => html`<${QueueLink} vhost=${queue.vhost} name=${queue.name} />` },
  { title: "Virtual host", sort: "vhost", isWide: true, cell: (queue) => html`<span class="name">${queue.vhost}</span>` },
  { title: "Features", isWide: true, cell: (queue) => html`<${Features} queue=${queue} />` },
  { title: "Ready", sort: "messages_ready", isNumber: true, cell: (queue) => count(queue.messages_ready) },
  { title: "Unacked", sort: "messages_unacknowledged", isNumber: true, cell: (queue) => count(queue.messages_unacknowledged) },
  { title: "Grows by", sort: "messages_details.rate", isNumber: true, cell: (queue) => rate(queue.messages_details && queue.messages_details.rate) },
  { title: "Scheduled", sort: "leveret.scheduled", isNumber: true, isWide: true, cell: (queue) => count(queue.leveret && queue.leveret.scheduled) },
  { title: "Bytes", sort: "message_bytes", isNumber: true, isExtra: true, cell: (queue) => bytes(queue.message_bytes) },
  { title: "Consumers", sort: "consumers", isNumber: true, cell: (queue) => count(queue.consumers) },
  { title: "In", sort: "message_stats.publish_details.rate", isNumber: true, isWide: true, cell: (queue) => rate(rateOf(stats(queue), "publish")) },
  { title: "Out", sort: "message_stats.deliver_get_details.rate", isNumber: true, isWide: true, cell: (queue) => rate(rateOf(stats(queue), "deliver_get")) },
  { title: "Acked", sort: "message_stats.ack_details.rate", isNumber: true, isWide: true, cell: (queue) => rate(rateOf(stats(queue), "ack")) },
  { title: "Redelivered", sort: "message_stats.redeliver_details.rate", isNumber: true, isExtra: true, cell: (queue) => rate(rateOf(stats(queue), "redeliver")) },
  { title: "In all", sort: "messages", isNumber: true, isExtra: true, cell: (queue) => count(queue.messages) },
  { title: "Persistent", sort: "messages_persistent", isNumber: true, isExtra: true, cell: (queue) => count(queue.messages_persistent) },
  { title: "On disk only", sort: "messages_paged_out", isNumber: true, isExtra: true, cell: (queue) => count(queue.messages_paged_out) },
  { title: "Room of consumers", sort: "consumer_capacity", isNumber: true, isExtra: true, cell: (queue) => (queue.consumers ? `${Math.round(queue.consumer_capacity * 100)} %` : "–") },
  { title: "Type", sort: "type", isExtra: true, cell: (queue) => queue.type },
  { title: "Durable", sort: "durable", isExtra: true, cell: (queue) => yesOrNo(queue.durable) },
  { title: "Policy", sort: "policy", isExtra: true, cell: (queue) => html`<span class="name">${queue.policy}</span>` },
  { title: "Operator policy", sort: "operator_policy", isExtra: true, cell: (queue) => html`<span class="name">${queue.operator_policy}</span>` },
  { title: "Idle since", sort: "idle_since", isExtra: true, cell: (queue) => queue.idle_since && html`<${Ago} ms=${Date.parse(queue.idle_since)} />` },
  { title: "Arguments", isExtra: true, cell: (queue) => html`<${Table} value=${queue.arguments} empty="" />` },
];

export function Queues({ query }) {
  return html`
    <h1>Queues</h1>
    <${List} base="queues" query=${query} columns=${COLUMNS} caption="Queues" what="queue"
      empty="No queues here; add one below, declare one by a client, or import definitions."
      keyOf=${(queue) => path(queue.vhost, queue.name)} actions=${(rows, done) => html`<${Many} rows=${rows} done=${done} />`} />
    <${Fold} title="Add a queue"><${Add} /><//>
  `;
}

/** Purge or delete several: how many and what, then one after the other. */
function Many({ rows, done }) {
  const run = async (title, verb, target, purges = false) => {
    const sum = { ready: 0, unacked: 0, scheduled: 0, consumers: 0 };
    for (const queue of rows) {
      const found = await act("", "GET", path("leveret", "preview", "queues", queue.vhost, queue.name));
      if (!found) return;
      for (const key of Object.keys(sum)) sum[key] += found.value[key];
    }
    const messages = sum.ready + sum.scheduled + (purges ? 0 : sum.unacked);
    const names = rows.slice(0, 5).map((queue) => queue.name).join(", ") + (rows.length > 5 ? ", …" : "");
    const text = `${title} ${several(rows.length, "queue")} with ${several(messages, "message")}: ${names}. This cannot be undone.`;
    const says = [`${count(sum.ready)} ready, ${count(sum.unacked)} unacknowledged and ${count(sum.scheduled)} scheduled messages are in them${purges ? "; the unacknowledged ones stay" : ""}`];
    if (sum.consumers && !purges) says.push(`${several(sum.consumers, "consumer")} lose their queue`);
    if (!(await confirm({ title: `${title} ${several(rows.length, "queue")}`, text, says, verb: title, typed: messages > TYPED_ABOVE ? String(messages) : "" }))) return;
    const failed = [];
    for (const queue of rows) {
      try {
        await ask("DELETE", target(queue));
      } catch (error) {
        failed.push(`${queue.name}: ${error.message}`);
      }
    }
    note(`${verb}: ${several(rows.length - failed.length, "queue")}.`);
    if (failed.length) note(failed.slice(0, 5).join("\n"), true);
    done();
  };
  return html`
    <${Danger} label="Purge" onClick=${() => run("Purge", "Purged", (queue) => path("queues", queue.vhost, queue.name, "contents"), true)} />
    <${Danger} label="Delete" onClick=${() => run("Delete", "Deleted", (queue) => path("queues", queue.vhost, queue.name))} />
  `;
}

function Add() {
  const fields = [
    { name: "name", label: "Name", required: true },
    { name: "vhost", label: "Virtual host", value: state.vhost || "/", required: true },
    { name: "type", label: "Type", options: ["classic", "quorum", "stream"], value: "classic" },
    { name: "durable", label: "Durable", type: "checkbox", value: true },
    { name: "auto_delete", label: "Auto-delete", type: "checkbox" },
    { name: "arguments", label: "Arguments", type: "json", hint: 'like {"x-max-length": 1000, "x-ring-size": 50}', keys: QUEUE_ARGUMENTS },
  ];
  const add = async (values) => {
    const body = {
      durable: values.durable,
      auto_delete: values.auto_delete,
      arguments: values.type === "classic" ? values.arguments : { "x-queue-type": values.type, ...values.arguments },
    };
    return Boolean(await act(`Queue ${values.name} is there.`, "PUT", path("queues", values.vhost, values.name), { body }));
  };
  return html`<${Form} name="Add a queue" fields=${fields} verb="Add" onSubmit=${add} />`;
}
