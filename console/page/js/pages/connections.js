// Connections and channels.
import { act, ago, Ago, Badge, bytes, ChannelLink, ClientOf, column, ConnectionLink, count, Danger, duration, EXTRA, Facts, Fold, go, Head, html, isMonitor, lacksTag, Limited, List, me, named, OF_CONSUMER, OF_QUEUE, OF_VHOST, orNone, Panel, path, QueueLink, rate, Rows, secondStep, several, Table, to, usePoll, UserLink, useState, VhostLink, WIDE, yesNo } from "../common.js";
import { Lines, MESSAGE_RATES, rateLine, Rates, useRange } from "../chart.js";

const flow = (one, name) => {
  const speed = one[`${name}_details`] && one[`${name}_details`].rate;
  return speed === undefined ? "–" : `${bytes(Math.round(speed))}/s`;
};
const stateOf = (state) => html`<span class=${/block|flow/.test(state) ? "fault" : ""}>${state}</span>`;

/** Unacknowledged messages that a connection's page shows at first: what else it shows stands below. */
const FIRST = 5;
const text = (value) => (typeof value === "string" ? value : "");
const product = ({ product: name, version }) => `${text(name)} ${text(version)}`;

const CONNECTIONS = [
  {
    title: "Name",
    sort: "name",
    cell: (one) => html`<${ConnectionLink} name=${one.name} label=${one.user_provided_name} />`,
  },
  column("User", "user"),
  OF_VHOST,
  column("State", "state", stateOf),
  { title: "TLS", sort: "ssl", isWide: true, cell: (one) => (one.ssl ? one.ssl_protocol || "yes" : "no") },
  column("Channels", "channels", count),
  { title: "From client", sort: "recv_oct_details.rate", isNumber: true, isWide: true, cell: (one) => flow(one, "recv_oct") },
  { title: "To client", sort: "send_oct_details.rate", isNumber: true, isWide: true, cell: (one) => flow(one, "send_oct") },
  column("Since", "connected_at", ago, WIDE),
  column("Received in all", "recv_oct", bytes, EXTRA),
  column("Sent in all", "send_oct", bytes, EXTRA),
  { title: "Client", sort: "client_properties.product", isExtra: true, cell: (one) => product(one.client_properties || {}) },
  column("Peer's address", "peer_host", named, EXTRA),
  { title: "Heartbeat", sort: "timeout", isNumber: true, isExtra: true, cell: (one) => (one.timeout ? `${one.timeout} s` : "none") },
  column("Node", "node", named, EXTRA),
];

export function Connections({ query }) {
  return html`
    <h1>Connections</h1>
    <${List} base="connections" query=${query} columns=${CONNECTIONS} caption="Connections" what="connection" isWhole=${isMonitor()}
     empty=${lacksTag("monitoring") ? "You have no connection; those of others need the tag monitoring." : "No client is connected."} />`;
}

export function Connection({ names: [name] }) {
  const place = path("connections", name);
  const { query, range, choice } = useRange();
  const view = usePoll(`${place}?${query}`);
  const channels = usePoll(`${place}/channels`);
  const about = usePoll(isMonitor() ? path("leveret", "connections", name) : null);
  const one = view.data;
  const { isHere } = view;
  const close = async () => {
    const text = `${name} of ${one.user}.`;
    const reason = await secondStep({ target: path("leveret", "preview", "connections", name), title: "Close the connection", text, asks: "Reason, which the client is told" });
    if (!reason) return;
    // A header takes no other letters.
    const headers = typeof reason === "string" ? { "x-reason": reason.replace(/[^\x20-\x7e]/g, "?") } : {};
    if (await act("The connection is closed.", "DELETE", place, { headers })) go(["connections"]);
  };
  return html`
    <${Head} list=${["connections", "Connections"]} what="Connection" name=${name} shown=${(isHere && one.user_provided_name) || name} view=${view} />
    ${isHere && one.user_provided_name && html`<p class="dim name">${name}</p>`}
    ${isHere && html`
      <${Blocked} about=${about.data} />
      ${about.data?.unacked > 0 && html`<${Held} about=${about.data} />`}
      <${Panel} title="Details" aside=${choice}>
        <div class="charts"><${Lines} title="Octets" id=${name} at=${view.at} range=${range} since=${one.leveret?.sampled_since_ms} isWhole shown=${(value) => `${bytes(Math.round(value))}/s`}
          lines=${[rateLine("From client", one, "recv_oct"), rateLine("To client", one, "send_oct")]} /></div>
        <${Facts} rows=${[
        ["User", html`<${UserLink} name=${one.user} />`],
        ["Virtual host", html`<${VhostLink} name=${one.vhost} />`],
        ["State", stateOf(one.state)],
        ["Protocol", one.protocol],
        ["Login", one.auth_mechanism],
        ["TLS", one.ssl ? `${one.ssl_protocol || ""} ${one.ssl_cipher || ""}` : "no"],
        ["Heartbeat", one.timeout ? `${one.timeout} s` : "none"],
        ["Certificate", ["subject", "issuer", "validity"].map((part) => one[`peer_cert_${part}`]).filter(Boolean).join("; ")],
        ["Largest frame", bytes(one.frame_max)],
        ["Channels at most", orNone(one.channel_max)],
        ["Connected", html`<${Ago} ms=${one.connected_at} />`],
        ["From client", `${bytes(one.recv_oct)}, ${flow(one, "recv_oct")}`],
        ["To client", `${bytes(one.send_oct)}, ${flow(one, "send_oct")}`],
      ]} /><//>
      <${Panel} title="Channels of this connection">
        <${Rows} rows=${channels.rows} columns=${CHANNELS.filter((column) => !column.isExtra && column.title !== "Virtual host")} caption="Channels" empty="It has no channel open." />
      <//>
      ${about.data?.unacked === 0 && html`<${Held} about=${about.data} />`}
      ${!isMonitor() && html`<${Panel} title="Consumers and unacknowledged messages"><p class="empty">Hidden: ${lacksTag("monitoring")}.</p><//>`}
      <${Fold} title="What the client says of itself"><${Table} value=${one.client_properties} /><//>
      <${Panel} title="Close"><${Danger} label="Close the connection …" onClick=${close} why=${one.user === me() ? "" : lacksTag()} /><//>
    `}`;
}

function Blocked({ about }) {
  if (!about || !about.blocked_by.length) return null;
  const held = about.held.publishes ? ` ${several(about.held.publishes, "publish waits", "publishes wait")} here.` : "";
  return html`<div class="band fault" role="alert">Blocked: it waits for room in ${about.blocked_by.map((one, index) => html`${index ? ", " : ""}<${Limited} key=${one.destination} text=${one.destination} /> (${one.limit}, for ${duration(one.waiting_ms)})`)}.${held} <a href=${to(["blocked"])}>Limits</a></div>`;
}

/** What a connection consumes, and which messages it has. */
function Held({ about }) {
  const [all, setAll] = useState(false);
  const consumers = [
    column("Tag", "tag"),
    OF_QUEUE,
    column("Unacked", "unacked", count),
    column("Prefetch", "prefetch", orNone),
    { title: "Oldest since", cell: (one) => (one.oldest_unacked_since_ms ? html`<${Ago} ms=${one.oldest_unacked_since_ms} />` : "–") },
  ];
  const messages = [
    { title: "Message", cell: (one) => html`<a class="name" href=${to(["find"], one.message_id ? { message_id: one.message_id } : { id: one.id })}>${one.message_id || one.correlation_id || `number ${one.id}`}</a>` },
    OF_QUEUE,
    { title: "Consumer", cell: (one) => html`<${ChannelLink} name=${`${about.name} (${one.channel})`} label=${one.consumer || "a get"} />` },
    column("Delivery tag", "delivery_tag", count, WIDE),
    column("Size", "payload_bytes", bytes, WIDE),
  ];
  return html`
    <${Panel} title="Consumers">
      <${Rows} rows=${about.consumers} columns=${consumers} caption="Consumers" by="channel tag" empty="It consumes nothing." />
    <//>
    <${Panel} title="Messages that it has not acknowledged">
      ${about.messages.length ? html`<${Rows} rows=${all ? about.messages : about.messages.slice(0, FIRST)} columns=${messages} caption="Unacknowledged messages" by="channel delivery_tag" />
        ${!all && about.messages.length > FIRST ? html`<button onClick=${() => setAll(true)}>The oldest ${count(about.messages.length)} of ${count(about.unacked)}</button>`
        : about.unacked > about.messages.length && html`<p class="dim">${count(about.messages.length)} of ${count(about.unacked)}, the oldest.</p>`}` : html`<p class="empty">None.</p>`}
    <//>`;
}

const CHANNELS = [
  { title: "Name", sort: "name", cell: (one) => html`<${ClientOf} details=${{ ...one.connection_details, name: one.name }} />` },
  column("User", "user", named, EXTRA),
  OF_VHOST,
  {
    title: "Mode",
    cell: (one) => html`${one.confirm && html`<${Badge} text="C" title="confirms what is published" />`}${one.transactional && html`<${Badge} text="T" title="transactional" />`}`,
  },
  column("State", "state", stateOf, WIDE),
  column("Consumers", "consumer_count", count),
  column("Prefetch", "prefetch_count", orNone, WIDE),
  column("Unacked", "messages_unacknowledged", count),
  column("Unconfirmed", "messages_unconfirmed", count, WIDE),
  column("Published", "message_stats.publish_details.rate", rate, WIDE),
  column("Delivered", "message_stats.deliver_get_details.rate", rate, WIDE),
  column("Acked", "message_stats.ack_details.rate", rate, EXTRA),
  column("Redelivered", "message_stats.redeliver_details.rate", rate, EXTRA),
  column("Unroutable", "message_stats.return_unroutable_details.rate", rate, EXTRA),
  column("Uncommitted", "messages_uncommitted", count, EXTRA),
  column("Idle since", "idle_since", (value) => value && ago(Date.parse(value)), EXTRA),
];

export function Channels({ query }) {
  return html`
    <h1>Channels</h1>
    <${List} base="channels" query=${query} columns=${CHANNELS} caption="Channels" what="channel" isWhole=${isMonitor()}
     empty=${lacksTag("monitoring") ? "You have no channel open; those of others need the tag monitoring." : "No channel is open."} />`;
}

export function Channel({ names: [name] }) {
  const { query, range, choice } = useRange();
  const view = usePoll(`${path("channels", name)}?${query}`);
  const one = view.data;
  const { isHere } = view;
  const columns = [...OF_CONSUMER, { title: "Queue", cell: (row) => html`<${QueueLink} vhost=${row.queue.vhost} name=${row.queue.name} />` }];
  return html`
    <${Head} list=${["channels", "Channels"]} what="Channel" name=${name} view=${view} />
    ${isHere && html`
      <${Panel} title="Details" aside=${choice}>
        ${one.message_stats && html`<div class="charts"><${Rates} id=${name} at=${view.at} range=${range} since=${one.leveret?.sampled_since_ms} stats=${one.message_stats} names=${MESSAGE_RATES} /></div>`}
        <${Facts} rows=${[
        ["Connection", one.connection_details && html`<${ConnectionLink} name=${one.connection_details.name} label=${one.connection_details.user_provided_name} />`],
        ["User", html`<${UserLink} name=${one.user} />`],
        ["Virtual host", html`<${VhostLink} name=${one.vhost} />`],
        ["State", one.state],
        ["Confirms", yesNo(one.confirm)],
        ["Transactional", yesNo(one.transactional)],
        ["Prefetch of a consumer", one.prefetch_count || "none"],
        ["Prefetch of the channel", one.global_prefetch_count || "none"],
        ["Unacknowledged", count(one.messages_unacknowledged)],
        ["Unconfirmed", count(one.messages_unconfirmed)],
        ["Uncommitted", count(one.messages_uncommitted)],
        ["Uncommitted acknowledgements", count(one.acks_uncommitted)],
        ["Idle", one.idle_since && html`<${Ago} ms=${Date.parse(one.idle_since)} />`],
      ]} /><//>
      <${Panel} title="Consumers">
        <${Rows} rows=${one.consumer_details || []} columns=${columns} caption="Consumers" by="consumer_tag" empty="It consumes nothing." />
      <//>
    `}`;
}
