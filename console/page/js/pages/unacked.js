// Who has had deliveries for how long without settling them, the longest first.
import { html } from "../lib.js";
import { usePoll } from "../api.js";
import { column, orNone, WIDE } from "../columns.js";
import { count, duration, moment } from "../format.js";
import { ChannelLink, OF_QUEUE, ofClient } from "../links.js";
import { Rows } from "../list.js";
import { Waiting } from "../parts.js";

const COLUMNS = [
  ofClient("Client"),
  column("Consumer", "tag"),
  OF_QUEUE,
  { title: "Oldest since", cell: (one) => (one.oldest_unacked_ms === null ? "a minute at most" : html`<time title=${moment(one.oldest_unacked_since_ms)}>${duration(one.oldest_unacked_ms)} ago</time>`) },
  column("Unacked", "unacked", count),
  column("Prefetch", "prefetch", orNone, WIDE),
  { title: "Channel", isWide: true, cell: (one) => html`<${ChannelLink} name=${`${one.connection} (${one.channel})`} />` },
];

export function Unacknowledged() {
  const view = usePoll("leveret/unacknowledged");
  const rows = view.data?.items || [];
  return html`<h1>Unacknowledged</h1>
    <p class="dim">Consumers that have messages, those that have had one the longest first. Which messages: the queue's page, “Browse messages”, with consumers.</p>
    <${Waiting} view=${view} what="consumers" />
    ${view.data && html`<${Rows} rows=${rows} columns=${COLUMNS} caption="Consumers with unacknowledged messages" by="connection channel tag" empty="No consumer has a message that it has not acknowledged." />`}
    ${view.data?.total > rows.length && html`<p class="dim">${count(rows.length)} of ${count(view.data.total)}.</p>`}`;
}
