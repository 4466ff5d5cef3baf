// The broker at a glance: how much is in it, how fast it goes, and what is wrong now.
import { asIs, bytes, Chip, column, ConnectionLink, count, duration, Facts, html, Limited, isMonitor, lacksTag, number, ofLimit, Panel, QueueLink, rate, rateOf, Rows, set, several, Tile, to, usePoll, useShared, useState, Waiting } from "../common.js";
import { lengthLines, Lines, MESSAGE_RATES, RangeChoice, rangeQuery, Rates } from "../chart.js";

const RATES = [...MESSAGE_RATES, ["confirm", "Confirmed"], ["return_unroutable", "Unroutable"]];

const CHURN = ["connection_created", "connection_closed", "channel_created", "channel_closed", "queue_declared", "queue_deleted"].map((name) => [name, name.replace("_", "s ")]);

/** Who has had a message for so long is worth a look. */
const LATE_MS = 10 * 60000;

export function Overview() {
  const [range, setRange] = useState(0);
  const view = usePoll(`overview?${rangeQuery(range)}`);
  const nodes = usePoll(isMonitor() ? "nodes" : null).data || [];
  const data = view.data;
  return html`
    <h1>Overview</h1>
    <${Waiting} view=${view} what="the overview" />
    ${data && html`
      ${isMonitor() ? html`<${Trouble} nodes=${nodes} />` : html`<p class="dim">What needs attention, nodes and listeners are hidden: ${lacksTag("monitoring")}.</p>`}
      <${Tiles} data=${data} />
      <${Charts} view=${view} range=${range} setRange=${setRange} />
      <${NodeNow} name=${data.node} nodes=${nodes} />
      ${data.listeners && html`<${Listeners} data=${data} isCluster=${nodes.length > 1} />`}
    `}`;
}

function Tiles({ data }) {
  const totals = data.queue_totals || {};
  const objects = data.object_totals || {};
  return html`<div class="tiles">
    <${Tile} label="Ready" value=${count(totals.messages_ready)} link=${to(["queues"], { sort: "messages_ready", reverse: "1" })} kind="strong" />
    <${Tile} label="Unacknowledged" value=${count(totals.messages_unacknowledged)} link=${to(["queues"], { sort: "messages_unacknowledged", reverse: "1" })} kind="strong" />
    <${Tile} label="Queues" value=${count(objects.queues)} link=${to(["queues"])} />
    <${Tile} label="Consumers" value=${count(objects.consumers)} />
    <${Tile} label="Connections" value=${count(objects.connections)} link=${to(["connections"])} />
    <${Tile} label="Channels" value=${count(objects.channels)} link=${to(["channels"])} />
    <${Tile} label="Exchanges" value=${count(objects.exchanges)} link=${to(["exchanges"])} />
  </div>`;
}

function Charts({ view, range, setRange }) {
  const { data, at } = view;
  const totals = data.queue_totals || {};
  const stats = data.message_stats;
  const known = RATES.filter(([name]) => rateOf(stats, name) !== undefined);
  const shared = { id: `overview-${range}`, at, range, since: data.leveret?.sampled_since_ms };
  return html`<${Panel} title="Messages" aside=${html`<${RangeChoice} range=${range} setRange=${setRange} />`}>
    <div class="charts">
      <${Lines} title="In queues" ...${shared} shown=${count} isWhole
        lines=${lengthLines(totals)} />
      ${known.length > 0
        ? html`<${Rates} ...${shared} stats=${stats} names=${RATES} />`
        : html`<p class="empty">No rates: nothing was published or delivered since the broker started, or it keeps no rates.</p>`}
      <${Rates} title="Opened and closed" ...${shared} stats=${data.churn_rates} names=${CHURN} />
    </div>
    ${known.length > 0 && html`<div class="tiles small">
      ${known.map(([name, label]) => html`<${Tile} key=${name} label=${label} value=${rate(rateOf(stats, name))} />`)}
    </div>`}
  <//>`;
}

/** From how many queues on it is told that growth is not known. */
const UNKNOWN_TOLD = 100;

function Trouble({ nodes }) {
  const { vhost } = useShared();
  const cluster = usePoll(nodes.length > 1 ? "leveret/cluster" : null).data;
  const blocked = usePoll("leveret/blocked");
  const queues = usePoll("queues?page=1&page_size=50&sort=messages&sort_reverse=true&columns=name,vhost,messages,consumers");
  const growing = usePoll("leveret/growing");
  const late = usePoll("leveret/unacknowledged");
  const oldest = late.data?.items.find((one) => one.oldest_unacked_ms > LATE_MS);
  const { items: grown = [], total: grownInAll = 0, unknown = 0 } = growing.data || {};
  const { alarm, blocked: connections = [], usage = [] } = blocked.data || {};
  const full = usage.filter((one) => one.full);
  const idle = (queues.data?.items || []).filter((one) => one.messages > 0 && one.consumers === 0);
  const lagging = (cluster?.nodes || []).filter((one) => !one["is-in-sync"] || !one["is-linked"]);
  const lines = [
    lagging.length > 0 && html`<li class=${cluster.state === "leading" ? "warning" : "fault"}><a href=${to(["nodes"])}>${lagging.length} of ${several(cluster.nodes.length, "node")}</a> not in sync: ${lagging.map((one) => `${one.name} is ${one.state.replace("_", " ")}`).join(", ")}</li>`,
    cluster?.etcd && cluster.etcd !== "answers" && html`<li class="fault">No other node can lead: ${cluster.etcd}</li>`,
    alarm && html`<li class="fault"><b>Alarm</b>: publishers are blocked${typeof alarm === "string" ? `: ${alarm}` : ""}.</li>`,
    full.length > 0 && html`<li class="fault"><a href=${to(["blocked"])}>${several(full.length, "limit")} reached</a>: ${full.slice(0, 3).map((one, index) => html`${index ? ", " : ""}<${Limited} text=${one.destination} />`)}</li>`,
    connections.length > 0 && html`<li class="fault"><a href=${to(["blocked"])}>${several(connections.length, "connection")} blocked</a>, the longest for ${duration(connections[0].waiting_ms)}: <${ConnectionLink} name=${connections[0].connection} label=${connections[0].connection_name} /></li>`,
    grown.length > 0 && html`<li class="warning">Growing for a minute: ${grown.slice(0, 5).map((one, index) => html`<span key=${one.vhost + one.name}>${index ? "; " : ""}<${QueueLink} vhost=${one.vhost} name=${one.name} /> by ${count(one.growth)}, now ${count(one.messages)}</span>`)}${grownInAll > 5 && ` and ${several(grownInAll - 5, "other queue")}`}</li>`,
    unknown > UNKNOWN_TOLD && html`<li>Whether they grow is not known of ${several(unknown, "queue")}: with more than 2,000 queues, or for the first minute, they are not followed.</li>`,
    oldest && html`<li class="warning"><a href=${to(["unacknowledged"])}>Not acknowledged</a> since ${duration(oldest.oldest_unacked_ms)}: <b class="name">${oldest.tag}</b> at <${QueueLink} vhost=${oldest.vhost} name=${oldest.queue} /></li>`,
    idle.length > 0 && html`<li class="warning">Messages without a consumer in ${idle.length === 50 ? "50 queues or more" : several(idle.length, "queue")}:
      <ul>${idle.slice(0, 5).map((one) => html`<li key=${one.name}><${QueueLink} vhost=${one.vhost} name=${one.name} />: ${several(one.messages, "message")}</li>`)}
        ${idle.length > 5 && html`<li><a href=${to(["queues"], { sort: "messages", reverse: "1" })}>and more</a></li>`}</ul></li>`,
  ].filter(Boolean);
  if (!blocked.data && !queues.data) return null;
  const only = vhost && html`<span>growing queues, and queues without a consumer, only in <${Chip} name=${vhost} label="In all virtual hosts" onClose=${() => set({ vhost: "" })} /></span>`;
  return html`<${Panel} title="Needs attention" aside=${only}>
    ${lines.length ? html`<ul class="trouble">${lines}</ul>` : html`<p class="good">✓ Nothing: no alarm, nobody blocked, no limit reached, every queue with messages has a consumer.</p>`}
  <//>`;
}

function NodeNow({ name, nodes }) {
  const node = nodes.find((one) => one.name === name);
  if (!node?.running) return null;
  return html`<${Panel} title=${nodes.length > 1 ? `Node ${name}` : "Node"} aside=${html`<a href=${to(["node"])}>more</a>`}>
    <${Facts} rows=${[
      ["Memory", html`${ofLimit(node.mem_used, node.mem_limit, bytes)}${node.mem_alarm ? html` <b class="fault">alarm</b>` : ""}`],
      ["Disk free", html`${bytes(node.disk_free)}${node.disk_free_limit > 0 ? `, alarm below ${bytes(node.disk_free_limit)}` : ""}${node.disk_free_alarm ? html` <b class="fault">alarm</b>` : ""}`],
      ["File descriptors", ofLimit(node.fd_used, node.fd_total, count)],
      ["Up for", duration(node.uptime)],
    ]} />
  <//>`;
}

function Listeners({ data, isCluster }) {
  const columns = [
    ...(isCluster ? [column("Node", "node", asIs)] : []),
    column("Protocol", "protocol", asIs),
    column("Address", "ip_address", asIs),
    column("Port", "port", number),
  ];
  return html`<${Panel} title="Listeners">
    <${Rows} rows=${data.listeners} columns=${columns} caption="Listeners" by="node protocol ip_address port" />
    <p class="dim">${data.product_name} ${data.product_version}, answers as RabbitMQ ${data.rabbitmq_version}; ${data.erlang_full_version}</p>
  <//>`;
}
