// Queues, and adding one. One queue has a file of its own.
import { act, ago, asIs, ask, bytes, column, confirm, count, Danger, EXTRA, Features, Fold, html, List, named, note, OF_VHOST, path, QueueLink, rate, several, table, TYPED_ABOVE, WIDE, yesNo } from "../common.js";
import { CommandForm } from "../form.js";

export { Queue } from "./queue.js";

const COLUMNS = [
  { title: "Name", sort: "name", cell: (queue) => html`<${QueueLink} vhost=${queue.vhost} name=${queue.name} />` },
  OF_VHOST,
  { title: "Features", isWide: true, cell: (queue) => html`<${Features} queue=${queue} />` },
  column("Ready", "messages_ready", count),
  column("Unacked", "messages_unacknowledged", count),
  column("Grows by", "messages_details.rate", rate),
  column("Scheduled", "leveret.scheduled", count, WIDE),
  column("Bytes", "message_bytes", bytes, EXTRA),
  column("Consumers", "consumers", count),
  column("In", "message_stats.publish_details.rate", rate, WIDE),
  column("Out", "message_stats.deliver_get_details.rate", rate, WIDE),
  column("Acked", "message_stats.ack_details.rate", rate, WIDE),
  column("Redelivered", "message_stats.redeliver_details.rate", rate, EXTRA),
  column("In all", "messages", count, EXTRA),
  column("Persistent", "messages_persistent", count, EXTRA),
  column("On disk only", "messages_paged_out", count, EXTRA),
  { title: "Consumer capacity", sort: "consumer_capacity", isNumber: true, isExtra: true, cell: (queue) => (queue.consumers ? `${Math.round(queue.consumer_capacity * 100)} %` : "–") },
  column("Type", "type", asIs, EXTRA),
  column("Durable", "durable", yesNo, EXTRA),
  column("Policy", "policy", named, EXTRA),
  column("Operator policy", "operator_policy", named, EXTRA),
  column("Idle since", "idle_since", (value) => value && ago(Date.parse(value)), EXTRA),
  column("Arguments", "arguments", table, EXTRA),
];

export function Queues({ query }) {
  return html`
    <h1>Queues</h1>
    <${List} base="queues" query=${query} columns=${COLUMNS} caption="Queues" what="queue"
     empty="No queues here; add one below, declare one by a client, or import definitions."
      by="vhost name" actions=${(rows, done) => html`<${Many} rows=${rows} done=${done} />`} />
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

const OWN = { type: { options: ["classic", "quorum", "stream"], value: "classic" }, durable: { value: true } };
const typed = ({ type, ...given }) => (type === "classic" ? given : { ...given, arguments: { "x-queue-type": type, ...given.arguments } });
const Add = () => html`<${CommandForm} of="declare-queue" only="queue vhost type durable auto_delete arguments" own=${OWN} name="Add a queue" verb="Add" change=${typed} done=${({ queue }) => `Queue ${queue} is there.`} />`;
