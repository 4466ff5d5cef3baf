// One queue: what is in it, how fast it goes, why it is as it is, and what can be done with it.
import { html, useMemo, useState } from "../lib.js";
import { act, path, usePoll } from "../api.js";
import { asIs, bold, code, column, named, orNone, WIDE, yesNo } from "../columns.js";
import { Bind, Bindings } from "../bindings.js";
import { Chart, history, RangeChoice, rangeQuery } from "../chart.js";
import { bytes, count, moment, rate, rateOf, several } from "../format.js";
import { Form } from "../form.js";
import { ClientOf, ofClient, VhostLink } from "../links.js";
import { Rows } from "../list.js";
import { Ago, Button, confirm, Danger, Facts, Fold, Panel, Table, Tile, Waiting } from "../parts.js";
import { Messages, Publish } from "../publish.js";
import { go, to } from "../route.js";
import { ofQueue, remove, secondStep } from "../second_step.js";
import { lacksTag, useMay } from "../may.js";
import { Many } from "./jobs.js";
import { Features } from "./queues.js";
import { ScheduledRows } from "./trouble.js";

const RATES = [["publish", "In"], ["deliver_get", "Out"], ["ack", "Acknowledged"], ["redeliver", "Redelivered"]];
/** Of the ranges: what its charts show at first, 10 minutes, and for how long the broker keeps samples of a queue. */
const [RANGE, RANGE_MOST] = [1, 2];

export function Queue({ names: [vhost, name] }) {
  const place = path("queues", vhost, name);
  const [range, setRange] = useState(RANGE);
  const view = usePoll(`${place}?${rangeQuery(range)}`);
  const bindings = usePoll(`${place}/bindings`);
  const may = useMay(vhost, "queue", name);
  const queue = view.data;
  const { isHere } = view;
  return html`
    <p class="crumbs"><a href=${to(["queues"])}>Queues</a> in <${VhostLink} name=${vhost} /></p>
    <h1><span class="name">${name}</span> ${isHere && html`<${Features} queue=${queue} />`}</h1>
    <${Waiting} view=${view} what=${`Queue ${name}`} />
    ${isHere && html`
      <${Numbers} queue=${queue} at=${view.at} range=${range} setRange=${setRange} />
      <${Panel} title="Consumers"><${Consumers} list=${queue.consumer_details || []} /><//>
      <${Publishers} vhost=${vhost} name=${name} why=${lacksTag("monitoring")} />
      <${Panel} title="Bindings">
        <${Bindings} side="source" bindings=${bindings.rows} reload=${bindings.reload} empty="No bindings." why=${may("write")} />
        <${Fold} title="Add a binding"><${Bind} vhost=${vhost} queue=${name} reload=${bindings.reload} why=${may("write")} /><//>
      <//>
      <${Explained} vhost=${vhost} name=${name} />
      ${queue.leveret?.scheduled > 0 && html`<${Panel} title="Scheduled"><${ScheduledRows} vhost=${vhost} queue=${name} why=${may("write")} /><//>`}
      ${queue.type !== "stream" && html`<${Browse} queue=${queue} why=${may("read")} />`}
      <${Take} queue=${queue} reload=${view.reload} why=${may("read")} />
      ${queue.type !== "stream" && html`<${Fold} title="Move, replay or discard messages"><${Many} vhost=${vhost} queue=${name} first=${{ what: "move" }} why=${may("read")} /><//>`}
      <${Fold} title="Publish to this queue"><${Publish} vhost=${vhost} exchange="" routingKey=${name} /><//>
      <${End} queue=${queue} reload=${view.reload} may=${may} />
    `}`;
}

function Numbers({ queue, at, range, setRange }) {
  const stats = queue.message_stats || {};
  const known = RATES.filter(([name]) => rateOf(stats, name) !== undefined);
  const key = `queue\n${queue.vhost}\n${queue.name}`;
  const since = queue.leveret?.sampled_since_ms;
  const depth = useMemo(
    () => history(`${key}\ndepth`, at, [
      { value: queue.messages_ready, details: queue.messages_ready_details },
      { value: queue.messages_unacknowledged, details: queue.messages_unacknowledged_details },
    ], range, since),
    [at],
  );
  const rates = useMemo(
    () => history(`${key}\nrates${known.length}`, at, known.map(([name]) => ({ value: rateOf(stats, name), details: stats[`${name}_details`], isRate: true })), range, since),
    [at],
  );
  return html`
    <div class="tiles">
      <${Tile} label="Ready" value=${count(queue.messages_ready)} kind="strong" />
      <${Tile} label="Unacknowledged" value=${count(queue.messages_unacknowledged)} kind="strong" />
      <${Tile} label="Scheduled" value=${count(queue.leveret?.scheduled)} />
      <${Tile} label="Consumers" value=${count(queue.consumers)} />
      ${known.map(([one, label]) => html`<${Tile} key=${one} label=${label} value=${rate(rateOf(stats, one))} />`)}
    </div>
    <${Panel} title="Details" aside=${html`<${RangeChoice} range=${range} setRange=${setRange} most=${RANGE_MOST} />`}>
      <div class="charts">
        <${Chart} title="Messages" points=${depth} labels=${["Ready", "Unacknowledged"]} shown=${count} isWhole />
        ${known.length > 0 && html`<${Chart} title="Rates" points=${rates} labels=${known.map(([, label]) => label)} shown=${rate} />`}
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
    column("Tag", "consumer_tag"),
    column("User", "channel_details.user", asIs, WIDE),
    column("Prefetch", "prefetch_count", orNone),
    column("Acknowledges", "ack_required", yesNo, WIDE),
    { title: "Active", cell: (one) => (one.active ? "yes" : one.activity_status || "no") },
    column("Exclusive", "exclusive", yesNo, WIDE),
  ];
  return html`<${Rows} rows=${list} columns=${columns} caption="Consumers" keyOf=${(one) => `${one.channel_details.name}\n${one.consumer_tag}`} />`;
}

/** Whose last publishes came here. */
function Publishers({ vhost, name, why }) {
  const view = usePoll(why ? null : path("leveret", "queues", vhost, name, "publishers"));
  const rows = view.rows;
  const columns = [
    ofClient("Client"),
    column("User", "user", named, WIDE),
    { title: "By", cell: (one) => one.by.map((by) => html`<div key=${`${by.exchange}\n${by.routing_key}`}><span class="name">${by.exchange || "(default)"}</span> with <code>${by.routing_key || "(no key)"}</code></div>`) },
    column("Published in all", "published", count),
    { title: "State", cell: (one) => (one.blocked ? html`<b class="fault">blocked</b>` : "running") },
  ];
  return html`<${Panel} title="Who publishes here">
    <${Rows} rows=${rows} columns=${columns} caption="Publishers" keyOf=${(one) => one.connection} empty=${why ? `Hidden: ${why}.` : "No client that is connected has published here lately."} />
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
      <${Rows} rows=${shown} columns=${columns} caption="Settings" keyOf=${(row) => `${row.name}\n${row.rule}`} empty="Everything is as by default." />
      <${Facts} rows=${[
        ["Declared at", found.declared_at],
        ["Address", found.address],
        ["Matching entries", found.matches?.length ? found.matches.join("; ") : ""],
        ["Policies", found.policies?.length ? found.policies.join("; ") : ""],
      ]} />
      <p class="dim">Flow control: ${found.flow}</p>`}
  <//>`;
}

/** Messages as they lie there. */
function Browse({ queue, why }) {
  const [found, setFound] = useState(null);
  const place = path("leveret", "queues", queue.vhost, queue.name, "browse");
  const look = async (wanted, after) => {
    const done = await act("", "POST", place, { body: { ...wanted, after, truncate: 50000 } });
    if (done) setFound({ wanted, ...done.value });
    return false;
  };
  const fields = [
    { name: "state", label: "Messages that are", options: [["ready", "ready"], ["unacked", "with consumers"], ["scheduled", "scheduled"]], value: "ready" },
    { name: "count", label: "At a time", type: "number", value: 20, required: true },
    { name: "text", label: "With this text" },
    { name: "header", label: "With headers", type: "json" },
    { name: "filter", label: "That a filter takes", hint: 'like amount > 10' },
  ];
  return html`<${Fold} title="Browse messages">
    <p class="dim">Nothing is taken, marked or moved.</p>
    <${Form} name="Browse messages" kind="row" fields=${fields} verb="Browse" onSubmit=${(wanted) => look(wanted, 0)} why=${why} />
    <div aria-live="polite">
      ${found && (found.items.length ? html`<${Messages} messages=${found.items} />` : html`<p class="empty">None${found.looked_at ? ` of the ${several(found.looked_at, "message")} looked at` : ""}.</p>`)}
      ${found?.wanted.state === "ready" && found.items.length > 0 && html`<${Fold} key=${found.items[0].position} title=${`Move, replay or discard these ${count(found.items.length)}`}>
        <${Many} vhost=${queue.vhost} queue=${queue.name} positions=${found.items.map((one) => one.position)} first=${{ what: "move" }} /><//>`}
      ${found && found.next !== null && html`<button type="button" onClick=${() => look(found.wanted, found.next)}>Next ${count(found.wanted.count)} of ${count(found.total)}</button>`}
    </div>
  <//>`;
}

const MODES = [
  ["ack_requeue_true", "look, and put back (marks them redelivered)"],
  ["ack_requeue_false", "take out for good"],
  ["reject_requeue_true", "reject, and put back"],
  ["reject_requeue_false", "reject: they die, or go to the dead letters"],
];

function Take({ queue, reload, why }) {
  const [messages, setMessages] = useState(null);
  const fields = [
    { name: "count", label: "At most", type: "number", value: 10, required: true },
    { name: "ackmode", label: "and then", options: MODES, value: "ack_requeue_true" },
  ];
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
    <${Form} name="Get messages" kind="row" fields=${fields} verb="Get" onSubmit=${take} why=${why} />
    <div aria-live="polite">
      ${messages && (messages.length ? html`<${Messages} messages=${messages} />` : html`<p class="empty">Nothing is ready in this queue.</p>`)}
    </div>
  <//>`;
}

/** Purge and delete, each in two steps. */
function End({ queue, reload, may }) {
  const place = path("queues", queue.vhost, queue.name);
  const preview = path("leveret", "preview", "queues", queue.vhost, queue.name);
  const purge = async () => {
    const text = `Of ${queue.name}. This cannot be undone.`;
    if (!(await secondStep({ target: preview, pick: (found) => found.purge, lost: (found) => found.ready + found.scheduled, name: queue.name, title: "Purge this queue", text, verb: "Purge" }))) return;
    if (await act(`${queue.name} is empty.`, "DELETE", `${place}/contents`)) reload();
  };
  const end = async () => {
    if (await remove("queues", "queue", [queue.vhost, queue.name], { lost: ofQueue })) go(["queues"]);
  };
  const isPaused = queue.leveret?.paused;
  const pause = async () => {
    if (await act(isPaused ? `${queue.name} delivers again.` : `${queue.name} delivers nothing.`, "PUT", path("leveret", "queues", queue.vhost, queue.name, "state"), { body: { paused: !isPaused } })) reload();
  };
  return html`<${Panel} title="Purge or delete">
    <div class="buttons">
      <${Button} label=${isPaused ? "Resume deliveries" : "Pause deliveries"} onClick=${pause} why=${lacksTag()} />
      <${Danger} label=${`Purge ${several(queue.messages_ready, "message")} …`} onClick=${purge} disabled=${!queue.messages_ready} why=${may("read")} />
      <${Danger} label="Delete the queue …" onClick=${end} why=${may("configure")} />
    </div>
  <//>`;
}
