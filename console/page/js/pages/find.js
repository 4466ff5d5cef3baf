// Where a message is, and what happens in the broker.
import { asIs, ask, Busy, Choice, column, count, Fold, html, lacksTag, moment, named, Panel, QueueLink, Rows, several, useEffect, useLong, useState, WIDE } from "../common.js";
import { CommandForm, MATCHES } from "../form.js";
import { Messages } from "../publish.js";
import { Stream } from "../stream.js";

/** As long as the broker looks: 20 s into queues, and then into the journal. */
const PATIENCE_MS = 90000;
const STATES = { ready: "ready", unacked: "with a consumer", scheduled: "scheduled" };

export function Find({ query }) {
  const [found, setFound] = useState(null);
  const [since, run, cancel] = useLong();
  const find = async (body) => {
    const done = await run((signal) => ask("POST", "leveret/search/messages", { body, signal, patience: PATIENCE_MS }));
    if (done) setFound({ ...done, isJournalAsked: Boolean(body.journal) });
    return false;
  };
  useEffect(() => {
    if (query.message_id) find({ message_id: query.message_id });
    else if (query.id) find({ id: Number(query.id) });
  }, [query.message_id, query.id]);
  return html`<h1>Find a message</h1>
    <p class="dim">In all queues that you may read; messages match all that is given. Nothing is taken, marked or moved.</p>
    <${CommandForm} of="search" only=${`message_id correlation_id ${MATCHES} journal`} values=${query} name="Find" kind="many" verb="Find" onSubmit=${find} />
    ${since > 0 && html`<${Busy} since=${since} onCancel=${cancel} text="Looking into the queues, for 20 s at most, then perhaps into the journal …" />`}
    ${since > 0 && found && html`<p class="warning">What is below was found by the search before this one.</p>`}
    <div aria-live="polite" class=${since > 0 ? "old" : ""}>${found && html`<${Found} found=${found} />`}</div>`;
}

/** How far back it is known what happened to messages that are gone. */
function Reach({ found }) {
  const { journal, events_since_ms: since } = found;
  const stopped = journal?.stopped ? ` It was not read to its end: ${journal.stopped}.` : "";
  return html`<p class="dim">
    ${since === null ? "No events are kept: they are while the page Events is open, and for a minute after." : `Events are kept since ${moment(since)}.`}
    ${found.isJournalAsked && !journal && " This broker has no journal."}
    ${journal && (journal.from_ms === null ? " The journal has no records." : ` The journal was read back to ${moment(journal.from_ms)}: its newest segments, ${several(journal.records, "record")}.${stopped}`)}
  </p>`;
}

function Found({ found }) {
  return html`
    <p>${several(found.items.length, "message")} found; ${count(found.looked_at)} looked at in ${several(found.queues, "queue")}${found.not_permitted ? `, ${count(found.not_permitted)} not permitted` : ""}.
      ${found.stopped && html` <b>The search ended early: ${found.stopped}.</b>`}</p>
    ${found.items.map((one, index) => html`<${Panel} key=${index} title=${html`${STATES[one.state]} in <${QueueLink} vhost=${one.vhost} name=${one.queue} />`}><${Messages} messages=${[one]} /><//>`)}
    ${lacksTag("monitoring") ? html`<p class="dim">What happened to messages that are gone is hidden: ${lacksTag("monitoring")}.</p>` : html`<${Reach} found=${found} />`}
    ${[...found.stories, ...(found.journal ? found.journal.stories : [])].map((story) => html`<${Fold} title=${`What happened to message ${story.message}`} isOpen><${EventRows} rows=${story.events} /><//>`)}`;
}

const COLUMNS = [
  { title: "At", cell: (one) => html`<time>${moment(one.at_ms)}</time>` },
  { title: "What", cell: (one) => one.kind.replaceAll("_", " ") },
  { title: "To", cell: (one) => named(one.subject || "(default)") },
  column("Virtual host", "vhost", asIs, WIDE),
  { title: "Messages", isNumber: true, cell: (one) => (one.count ? count(one.count) : "") },
  { title: "More", isWide: true, cell: (one) => Object.entries(one.detail).map(([name, value]) => `${name}: ${value}`).join(", ") },
];

const EventRows = ({ rows }) => html`<${Rows} rows=${rows} columns=${COLUMNS} caption="Events" keyOf=${(one) => one.number ?? one.lsn} />`;

const KINDS = [["", "everything"], ["connection_opened,connection_closed,consumer_added,consumer_removed", "clients"], ["declared,undeclared,bound,unbound,settings_changed", "what there is"], ["published,routed,unroutable", "publishes"], ["delivered,acked,requeued,transferred", "deliveries"], ["expired,dead_lettered,killed,evicted,replaced,dropped,blocked,unblocked", "losses, and blocked publishers"], ["led,followed,in_sync_changed,held,suspended", "the cluster"]];

/** As they happen; the broker keeps them only while a page shows them. */
export function Events() {
  const [kind, setKind] = useState("");
  const [queue, setQueue] = useState("");
  return html`<${Stream} title="Events" about="What happens from now on" target=${`leveret/events?${new URLSearchParams({ kind, queue })}`} name="event" what="event" draw=${(rows) => html`<${EventRows} rows=${rows} />`}>
      <${Choice} label="Only" value=${kind} options=${KINDS} onChange=${setKind} />
      <label>Of the queue <input type="search" value=${queue} placeholder="all" onChange=${(event) => setQueue(event.currentTarget.value)} /></label><//>`;
}
