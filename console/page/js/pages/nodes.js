// The nodes of a cluster: who leads, whose copies are behind, and what an operator does before a machine is switched off.
import { act, Ago, asIs, ask, Badge, bytes, column, confirm, count, Danger, duration, Facts, html, lacksTag, moment, named, Panel, Rows, several, Tile, usePoll, Waiting, WIDE } from "../common.js";

const STATES = {
  leading: "serves clients; its journal is copied",
  held: "leads, but publishers are blocked: too few nodes are in sync",
  suspended: "leads perhaps: nothing is read from clients until that is known",
  in_sync: "has on disk what is confirmed: it may lead",
  following: "copies, and is not waited for",
  drained: "copies, and does not lead until it is revived",
  absent: "its process has ended, or it is cut off",
  lost: "does not answer",
};

/** What is to be seen at once. */
const LOOKS = { held: "fault", suspended: "fault", absent: "warning", lost: "warning" };

/** How a node gets what it missed. */
const CATCHES_UP = { "full copy": "gets a full copy of the journal", "from files": "gets what it missed from the leader's files" };

/** Of a node whose files say something else than the leader's. */
function differs(node) {
  const found = [...(node.differences || []), ...(node.faults || []).map((fault) => `cannot be reloaded: ${fault}`)];
  return found.length > 0 && html`<br /><${Badge} text="configuration differs" kind="warning" /> <small>${found.slice(0, 5).join(", ")}${found.length > 5 ? ` and ${found.length - 5} more` : ""}</small>`;
}

/** Why a node may be behind: what it told last. */
const alarms = (node) => (node.status?.alarms || []).map((one) => html` <${Badge} text="${one} alarm" kind="warning" />`);

function Acts({ node, leader, reload }) {
  const { name } = node;
  /** Ask, do it, and look again: what becomes of it, the rows say. */
  const button = (verb, title, text, isHandover, done = `${name} was asked to ${verb.toLowerCase()}.`) => html`<${Danger} label=${`${verb} …`} why=${lacksTag()} onClick=${async () => {
    const found = isHandover && (await ask("GET", "overview?disable_stats=true&columns=object_totals").catch(() => null));
    const says = found ? [`${several(found.object_totals.connections, "connection")} end; clients connect again, to any node: some seconds`] : [];
    if ((await confirm({ title, text, says, verb })) && (await act(done, "POST", `leveret/cluster/${verb.toLowerCase().replace(" ", "")}`, { body: { node: name } }))) reload();
  }} />`;
  const isLeader = name === leader;
  const drain = button("Drain", `Drain ${name}`, `It copies and does not lead until it is revived.${isLeader ? " It leads now, and hands over first." : ""}`, isLeader);
  if (node["is-drained"]) return button("Revive", `Revive ${name}`, "It may lead again.");
  if (isLeader) return drain;
  return node["is-linked"] && html`<span class="buttons">
    ${node["is-in-sync"] && button("Hand over", `Let ${name} lead`, `${leader} hands over to ${name}.`, true, `${leader} was asked to hand over to ${name}.`)} ${drain}</span>`;
}

const WORDS = {
  led: (change) => `${change.node} leads, in term ${change.term}${change.why && `: ${change.why}`}`,
  left: (change) => `${change.node} led until then, in term ${change.term}`,
  held: (change) => `${change.node} blocks publishers: ${change.why}`,
  suspended: (change) => `${change.node} serves nobody: ${change.why}`,
};

/** Who led when, the latest first. */
function History({ view }) {
  const found = view.data;
  const columns = [
    { title: "When", cell: (change) => moment(change["at-ms"]) },
    { title: "What", cell: (change) => (WORDS[change.what] ? WORDS[change.what](change) : change.why) },
  ];
  const rows = found?.changes.map((change, index) => ({ ...change, index })).reverse();
  return html`<${Panel} title="History">
    <${Waiting} view=${view} what="the history" />
    ${rows && html`<${Rows} rows=${rows} columns=${columns} caption="Changes" by="index" />
      <p class="dim">As node ${found.node} has seen it since ${moment(found["since-ms"])}, also while it followed; who led before then, as far as another node knows. At most 200 changes.</p>`}
  <//>`;
}

export function Nodes() {
  const nodes = usePoll("nodes");
  const isAlone = Array.isArray(nodes.data) && nodes.data.length === 1;
  const view = usePoll(nodes.data && !isAlone ? "leveret/cluster" : null);
  const history = usePoll(nodes.data && !isAlone ? "leveret/cluster/history" : null);
  const cluster = view.data;
  const figures = Object.fromEntries((nodes.data || []).map((one) => [one.name, one]));
  const of = (node) => figures[node.name.includes("@") ? node.name : `rabbit@${node.name}`] || {};
  const columns = cluster && [
    { title: "Node", cell: (node) => html`${named(node.name)} ${node.name === cluster.leader && html`<${Badge} text="leads" kind="good" />`}` },
    { title: "State", cell: (node) => html`<span class=${LOOKS[node.state] || ""}>${node.state.replace("_", " ")}</span> <small>${[STATES[node.state], CATCHES_UP[node["catching-up"]]].filter(Boolean).join("; ")}</small>${alarms(node)}${differs(node)}` },
    { title: "Behind", isNumber: true, cell: (node) => (node.lag == null ? "" : `${count(node.lag)}${node["lag-s"] >= 1 ? `, for ${duration(node["lag-s"] * 1000)}` : ""}`) },
    column("Memory", "of.mem_used", bytes, WIDE),
    column("Disk free", "of.disk_free", bytes, WIDE),
    column("Up for", "of.uptime", duration, WIDE),
    column("Version", "version", asIs, WIDE),
    { title: "Reaches", isWide: true, cell: (node) => (node.reaches || []).join(", ") },
    { title: "", cell: (node) => html`<${Acts} node=${node} leader=${cluster.leader} reload=${view.reload} />` },
  ];
  return html`
    <h1>Nodes</h1>
    <${Waiting} view=${nodes} what="nodes" />
    ${isAlone && html`<p class="empty">This broker is alone: its configuration has no [cluster].</p>`}
    ${!isAlone && nodes.data && html`<${Waiting} view=${view} what="the cluster" />`}
    ${cluster && html`
      <div class="tiles">
        <${Tile} label="Leads" value=${cluster.leader || "nobody"} kind="strong" />
        <${Tile} label="In sync" value=${`${cluster.insync.length} of ${cluster.nodes.length}`} />
        <${Tile} label="Term" value=${count(cluster.term)} />
        <${Tile} label="Not yet agreed" value=${count(Math.max(0, cluster.end - cluster.agreed))} />
      </div>
      <${Rows} rows=${cluster.nodes.map((node) => ({ ...node, of: of(node) }))} columns=${columns} caption="Nodes" />
      <p class="dim">Behind: records that a node does not have on disk yet, and for how long.</p>
      <${Panel} title="The node that answers"><${Facts} rows=${[
        ["Cluster", cluster.cluster],
        ["Node", cluster.node],
        ["State", cluster.state.replace("_", " ")],
        ["Since", html`<${Ago} ms=${cluster["since-ms"]} />`],
        ["Because", cluster.why],
        ["In sync", cluster.insync.join(", ")],
        ["etcd", cluster.etcd],
      ]} /><//>
      <${History} view=${history} />
    `}`;
}
