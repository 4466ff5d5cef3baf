// Who has had deliveries for how long without settling them, the longest first.
import { ChannelLink, column, count, duration, html, moment, OF_QUEUE, ofClient, orNone, Rows, usePoll, Waiting, WIDE } from "../common.js";

const COLUMNS = [
  ofClient("Client"),
  column("Consumer", "tag"),
  OF_QUEUE,
  { title: "Held for", cell: (one) => (one.oldest_unacked_ms === null ? "a few seconds" : html`<time title=${moment(one.oldest_unacked_since_ms)}>${duration(one.oldest_unacked_ms)}</time>`) },
  column("Unacked", "unacked", count),
  column("Prefetch", "prefetch", orNone, WIDE),
  { title: "Channel", isWide: true, cell: (one) => html`<${ChannelLink} name=${`${one.connection} (${one.channel})`} label=${one.channel} />` },
];

export function Unacknowledged() {
  const view = usePoll("leveret/unacknowledged");
  const rows = view.data?.items || [];
  return html`<h1>Unacknowledged</h1>
    <p class="dim">Consumers that have messages, those that have had one the longest first; times are known to ten seconds. Which messages: the client's page.</p>
    <${Waiting} view=${view} what="consumers" />
    ${view.data && html`<${Rows} rows=${rows} columns=${COLUMNS} caption="Consumers with unacknowledged messages" by="connection channel tag" empty="No consumer has a message that it has not acknowledged." />`}
    ${view.data?.total > rows.length && html`<p class="dim">${count(rows.length)} of ${count(view.data.total)}.</p>`}`;
}
