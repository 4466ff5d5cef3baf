// One queue: what is in it, how fast it goes, why it is as it is, and what can be done with it.
import { act, Ago, asIs, bold, Button, bytes, Choice, ClientOf, code, column, confirm, count, Danger, Facts, Features, Fold, go, Head, html, lacksTag, moment, named, OF_CONSUMER, ofClient, ofQueue, Panel, path, rate, rateOf, refine, remove, Rows, secondStep, several, Table, Tabs, Tile, to, useMay, usePoll, useState, Waiting, WIDE } from "../common.js";
import { Bind, Bindings } from "../bindings.js";
import { lengthLines, Lines, RangeChoice, rangeQuery, Rates } from "../chart.js";
import { CommandForm, MATCHES } from "../form.js";
import { MessageTable } from "../message_table.js";
import { Messages, Publish } from "../publish.js";
import { Many } from "./jobs.js";
import { ScheduledRows } from "./trouble.js";

const RATES = [["publish", "In"], ["deliver_get", "Out"], ["ack", "Acknowledged"], ["redeliver", "Redelivered"]];
/** Of the ranges: what its charts show at first, 10 minutes, and for how long the broker keeps samples of a queue. */
const [RANGE, RANGE_MOST] = [1, 2];

const TABS = [["", "Overview"], ["clients", "Clients"], ["bindings", "Bindings"], ["messages", "Messages"], ["settings", "Settings"]];
const SHOWN = {
  "": ({ queue, view, range, setRange, may }) => html`<${Details} queue=${queue} at=${view.at} range=${range} setRange=${setRange} />
    <${End} queue=${queue} reload=${view.reload} may=${may} />`,
  clients: ({ queue }) => html`<${Panel} title="Consumers"><${Consumers} list=${queue.consumer_details || []} /><//>
    <${Publishers} vhost=${queue.vhost} name=${queue.name} why=${lacksTag("monitoring")} />`,
  bindings: ({ queue, may }) => html`<${BoundBy} queue=${queue} why=${may("write")} />`,
  messages: ({ queue, query, view, may }) => html`
    ${queue.leveret?.scheduled > 0 && html`<${Panel} title="Scheduled"><${ScheduledRows} vhost=${queue.vhost} queue=${queue.name} why=${may("write")} /><//>`}
    ${queue.type !== "stream" && html`<${Browse} queue=${queue} query=${query} why=${may("read")} />`}
    <${Take} queue=${queue} reload=${view.reload} why=${may("read")} />
    ${queue.type !== "stream" && html`<${Fold} title="Move, replay or discard messages"><${Many} vhost=${queue.vhost} queue=${queue.name} first=${{ what: "move" }} why=${may("read")} /><//>`}
    <${Fold} title="Publish to this queue"><${Publish} vhost=${queue.vhost} exchange="" routingKey=${queue.name} /><//>`,
  settings: ({ queue }) => html`<${Explained} vhost=${queue.vhost} name=${queue.name} />`,
};

export function Queue({ names: [vhost, name], query }) {
  const [range, setRange] = useState(RANGE);
  const view = usePoll(`${path("queues", vhost, name)}?${rangeQuery(range)}`);
  const may = useMay(vhost, "queue", name);
  const { data: queue, isHere } = view;
  const tab = Object.hasOwn(SHOWN, query.tab || "") ? query.tab || "" : "";
  return html`
    <${Head} list=${["queues", "Queues"]} what="Queue" name=${name} vhost=${vhost} view=${view}>${isHere && html`<${Features} queue=${queue} />`}<//>
    ${isHere && html`
      <${Numbers} queue=${queue} />
      <${Tabs} tabs=${TABS} shown=${tab} />
      ${SHOWN[tab]({ queue, query, view, range, setRange, may })}
    `}`;
}

function BoundBy({ queue, why }) {
  const view = usePoll(path("queues", queue.vhost, queue.name, "bindings"));
  return html`<${Panel} title="Bindings">
    <${Bindings} side="source" bindings=${view.rows} reload=${view.reload} empty="No bindings." why=${why} />
    <${Fold} title="Add a binding"><${Bind} vhost=${queue.vhost} queue=${queue.name} reload=${view.reload} why=${why} /><//>
  <//>`;
}

const known = (queue) => RATES.filter(([name]) => rateOf(queue.message_stats, name) !== undefined);

const Numbers = ({ queue }) => html`<div class="tiles">
  <${Tile} label="Ready" value=${count(queue.messages_ready)} kind="strong" />
  <${Tile} label="Unacknowledged" value=${count(queue.messages_unacknowledged)} kind="strong" />
  <${Tile} label="Scheduled" value=${count(queue.leveret?.scheduled)} />
  <${Tile} label="Consumers" value=${count(queue.consumers)} />
  ${known(queue).slice(0, 3).map(([one, label]) => html`<${Tile} key=${one} label=${label} value=${rate(rateOf(queue.message_stats, one))} />`)}
</div>`;

function Details({ queue, at, range, setRange }) {
  const id = `queue\n${queue.vhost}\n${queue.name}`;
  const shared = { id, at, range, since: queue.leveret?.sampled_since_ms };
  return html`<${Panel} title="Details" aside=${html`<${RangeChoice} range=${range} setRange=${setRange} most=${RANGE_MOST} />`}>
      <div class="charts">
        <${Lines} title="Messages" ...${shared} shown=${count} isWhole lines=${lengthLines(queue)} />
        ${known(queue).length > 0 && html`<${Rates} ...${shared} stats=${queue.message_stats} names=${RATES} />`}
      </div>
      <${Facts} rows=${[
        ["Type", queue.type],
        ["State", queue.leveret?.paused ? "paused: its consumers get nothing" : queue.state],
        ["Idle", queue.idle_since && html`<${Ago} ms=${Date.parse(queue.idle_since)} />`],
        ["Bodies", bytes(queue.message_bytes)],
        ["Of them in memory", queue.message_bytes_ram === queue.message_bytes ? "" : bytes(queue.message_bytes_ram)],
        ["Persistent", count(queue.messages_persistent)],
        ["Oldest message's timestamp", queue.head_message_timestamp ? moment(queue.head_message_timestamp * 1000) : ""],
        ["Address", queue.leveret?.address === queue.name ? "" : queue.leveret?.address],
        ["Policy", queue.policy && html`<a href=${to(["policies"], { name: queue.policy })}>${queue.policy}</a>`],
        ["Operator policy", queue.operator_policy],
        ["Owner", queue.owner_pid_details?.name],
        ["Arguments", html`<${Table} value=${queue.arguments} />`],
      ]} />
    <//>`;
}

function Consumers({ list }) {
  if (!list.length) return html`<p class="empty">No consumers: what comes in stays.</p>`;
  const columns = [
    { title: "Client", cell: (one) => html`<${ClientOf} details=${one.channel_details} />` },
    column("User", "channel_details.user", asIs, WIDE),
    ...OF_CONSUMER,
  ];
  return html`<${Rows} rows=${list} columns=${columns} caption="Consumers" by="channel_details.name consumer_tag" />`;
}

/** Whose last publishes came here. */
function Publishers({ vhost, name, why }) {
  const view = usePoll(why ? null : path("leveret", "queues", vhost, name, "publishers"));
  const rows = view.rows;
  const columns = [
    ofClient("Client"),
    column("User", "user", named, WIDE),
    { title: "By", cell: (one) => one.by.map((by) => html`<div key=${`${by.exchange}\n${by.routing_key}`}>${named(by.exchange || "(default)")} with <code>${by.routing_key || "(no key)"}</code></div>`) },
    column("Published to all queues", "published", count),
    { title: "State", cell: (one) => (one.blocked ? html`<b class="fault">blocked</b>` : "running") },
  ];
  return html`<${Panel} title="Who publishes here">
    <${Rows} rows=${rows} columns=${columns} caption="Publishers" by="connection" empty=${why ? `Hidden: ${why}.` : "No client that is connected has published here lately."} />
  <//>`;
}

/** Which rule gave each value. Defaults are many and seldom asked for: they come on demand. */
function Explained({ vhost, name }) {
  const [all, setAll] = useState(false);
  const view = usePoll(path("leveret", "explain", vhost, name), { isOnce: true });
  const found = Array.isArray(view.data) ? view.data[0] : null;
  const rows = found ? found.rows : [];
  const given = rows.filter((row) => !/^default/.test(row.rule) && row.value !== null);
  const shown = all ? rows : given;
  const columns = [
    column("Setting", "name", code),
    column("Value", "value", bold),
    column("Given by", "rule", asIs),
  ];
  const aside = rows.length > 0 && html`<label><input type="checkbox" checked=${all} onChange=${(event) => setAll(event.currentTarget.checked)} /> defaults too (${rows.length})</label>`;
  return html`<${Panel} title="Settings, and what gave them" aside=${aside}>
    <${Waiting} view=${view} what="the settings" />
    ${found && html`
      <${Rows} rows=${shown} columns=${columns} caption="Settings" by="name rule" empty="Everything is as by default." />
      <${Facts} rows=${[
        ["Declared at", found.declared_at],
        ["Address", found.address],
        ["Matching entries", found.matches?.length ? found.matches.join("; ") : ""],
        ["Policies", found.policies?.length ? found.policies.join("; ") : ""],
      ]} />
      <p class="dim">Flow control: ${found.flow}</p>`}
  <//>`;
}

/** Messages as they lie there, whole or as a table. */
function Browse({ queue, query, why }) {
  const [found, setFound] = useState(null);
  const place = path("leveret", "queues", queue.vhost, queue.name, "browse");
  const look = async (wanted, after) => {
    const done = await act("", "POST", place, { body: { ...wanted, after, truncate: 50000 } });
    if (done) setFound({ wanted, ...done.value });
    return false;
  };
  return html`<${Panel} title="Browse messages" aside=${html`<${Choice} label="Show" value=${query.as || ""} options=${[["", "whole messages"], ["table", "a table"]]} onChange=${(as) => refine({ as, columns: "" })} />`}>
    <p class="dim">Nothing is taken, marked or moved.</p>
    <${CommandForm} of="browse" only=${`state count ${MATCHES}`} own=${{ count: { value: 20, required: true, hint: "" } }} name="Browse messages" kind="row" verb="Browse" onSubmit=${(wanted) => look(wanted, 0)} why=${why} />
    <div aria-live="polite">
      ${found && (found.items.length ? html`<${query.as ? MessageTable : Messages} messages=${found.items} query=${query} />` : html`<p class="empty">None${found.looked_at ? ` of the ${several(found.looked_at, "message")} looked at` : ""}.</p>`)}
      ${found?.wanted.state === "ready" && found.items.length > 0 && html`<${Fold} key=${found.items[0].position} title=${`Move, replay or discard these ${count(found.items.length)}`}>
        <${Many} vhost=${queue.vhost} queue=${queue.name} positions=${found.items.map((one) => one.position)} first=${{ what: "move" }} /><//>`}
      ${found && found.next !== null && html`<button onClick=${() => look(found.wanted, found.next)}>Next ${count(found.wanted.count)} of ${count(found.total)}</button>`}
    </div><//>`;
}

const MODES = [
  ["ack_requeue_true", "look, and put back (marks them redelivered)"],
  ["ack_requeue_false", "take out for good"],
  ["reject_requeue_true", "reject, and put back"],
  ["reject_requeue_false", "reject: they die, or go to the dead letters"],
];

function Take({ queue, reload, why }) {
  const [messages, setMessages] = useState(null);
  const own = { count: { value: 10, required: true, hint: "" }, ackmode: { label: "and then", options: MODES } };
  const take = async (values) => {
    const isLost = values.ackmode.endsWith("requeue_false");
    const text = `Up to ${several(values.count, "message")} leave ${queue.name}. This cannot be undone.`;
    if (isLost && !(await confirm({ title: "Take messages out", text, verb: "Take" }))) return false;
    const body = { count: values.count, ackmode: values.ackmode, encoding: "auto", truncate: 50000 };
    const done = await act("", "POST", path("queues", queue.vhost, queue.name, "get"), { body });
    if (done) setMessages(done.value);
    reload();
    return false;
  };
  return html`<${Fold} title="Get messages">
    <${CommandForm} of="get" only="count ackmode" own=${own} name="Get messages" kind="row" verb="Get" onSubmit=${take} why=${why} />
    <div aria-live="polite">
      ${messages && (messages.length ? html`<${Messages} messages=${messages} />` : html`<p class="empty">Nothing is ready in this queue.</p>`)}
    </div>
  <//>`;
}

function End({ queue, reload, may }) {
  const place = path("queues", queue.vhost, queue.name);
  const preview = path("leveret", "preview", "queues", queue.vhost, queue.name);
  const purge = async () => {
    const text = `${queue.name}. This cannot be undone.`;
    if (!(await secondStep({ target: preview, pick: (found) => found.purge, lost: (found) => found.ready + found.scheduled, name: queue.name, title: "Purge this queue", text, verb: "Purge" }))) return;
    if (await act(`${queue.name} is purged.`, "DELETE", `${place}/contents`)) reload();
  };
  const end = async () => {
    if (await remove("queues", "queue", [queue.vhost, queue.name], { lost: ofQueue })) go(["queues"]);
  };
  const isPaused = queue.leveret?.paused;
  const pause = async () => {
    if (await act(isPaused ? `${queue.name} delivers again.` : `${queue.name} delivers nothing.`, "PUT", path("leveret", "queues", queue.vhost, queue.name, "state"), { body: { paused: !isPaused } })) reload();
  };
  return html`<${Panel} title="Pause, purge or delete">
    <div class="buttons">
      <${Button} label=${isPaused ? "Resume deliveries" : "Pause deliveries"} onClick=${pause} why=${lacksTag()} />
      <${Danger} label=${`Purge ${several(queue.messages_ready, "message")} …`} onClick=${purge} disabled=${!queue.messages_ready} why=${may("read")} />
      <${Danger} label="Delete the queue …" onClick=${end} why=${may("configure")} />
    </div>
  <//>`;
}
