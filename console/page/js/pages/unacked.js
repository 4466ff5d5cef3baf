// Who has had deliveries for how long without settling them, the longest first.
import { html } from "../lib.js";
import { usePoll } from "../api.js";
import { count, duration, moment } from "../format.js";
import { ChannelLink, ConnectionLink, QueueLink } from "../links.js";
import { Rows } from "../list.js";
import { Waiting } from "../parts.js";

const COLUMNS = [
  { title: "Client", cell: (one) => html`<${ConnectionLink} name=${one.connection} label=${one.connection_name} />` },
  { title: "Consumer", cell: (one) => html`<span class="name">${one.tag}</span>` },
  { title: "Queue", cell: (one) => html`<${QueueLink} vhost=${one.vhost} name=${one.queue} />` },
  { title: "Oldest since", cell: (one) => (one.oldest_unacked_ms === null ? "a minute at most" : html`<time title=${moment(one.oldest_unacked_since_ms)}>${duration(one.oldest_unacked_ms)} ago</time>`) },
  { title: "Unacked", isNumber: true, cell: (one) => count(one.unacked) },
  { title: "Prefetch", isNumber: true, isWide: true, cell: (one) => (one.prefetch ? count(one.prefetch) : "none") },
  { title: "Channel", isWide: true, cell: (one) => html`<${ChannelLink} name=${`${one.connection} (${one.channel})`} />` },
];

export function Unacknowledged() {
  const view = usePoll("leveret/unacknowledged");
  const rows = (view.data && view.data.items) || [];
  return html`<h1>Unacknowledged</h1>
    <p class="dim">Consumers that have messages, those that have had one the longest first. Which messages: the queue's page, “Browse messages”, with consumers.</p>
    <${Waiting} view=${view} what="consumers" />
    ${view.data && (rows.length ? html`<${Rows} rows=${rows} columns=${COLUMNS} caption="Consumers with unacknowledged messages" keyOf=${(one) => `${one.connection}\n${one.channel}\n${one.tag}`} />`
      : html`<p class="empty">No consumer has a message that it has not acknowledged.</p>`)}
    ${view.data && view.data.total > rows.length && html`<p class="dim">${count(rows.length)} of ${count(view.data.total)}.</p>`}`;
}
