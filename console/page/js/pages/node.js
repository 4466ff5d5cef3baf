// The process: its memory, its counters, what it was told.
import { act, Button, bytes, count, dropped, duration, Facts, html, lacksTag, moment, named, Panel, secondStep, Table, Tile, to, usePoll, useState, Waiting } from "../common.js";
import { Lines, RangeChoice, rangeQuery } from "../chart.js";

const words = (name) => name.replace(/_ms$/, "").replaceAll("_", " ").replaceAll("-", " ");

function shown(name, value) {
  if (typeof value !== "number") return typeof value === "object" ? html`<${Table} value=${value} />` : String(value);
  if (name.endsWith("_ms")) return value > 1e12 ? moment(value) : duration(value);
  return /bytes|octets/.test(name) ? bytes(value) : count(value);
}

/** Read the configuration files again; first what that would change. */
async function reload() {
  const pick = (found) => [...found.changes, ...found.says];
  const text = "If there is a fault in them, nothing changes. With these files:";
  if (!(await secondStep({ target: "leveret/preview/reload", body: {}, pick, lost: dropped, name: "reload", title: "Read the configuration files again", text, verb: "Reload" }))) return;
  await act("The configuration files are in force.", "POST", "leveret/reload", { body: {} });
}

function Charts({ node, at, range, setRange }) {
  const shared = { id: node.name, at, range, since: node.leveret?.sampled_since_ms };
  return html`<${Panel} title="Over time" aside=${html`<${RangeChoice} range=${range} setRange=${setRange} />`}>
    <div class="charts">
      <${Lines} title="Memory" ...${shared} shown=${bytes} lines=${[["Memory", node.mem_used, node.mem_used_details]]} />
      <${Lines} title="Disk free" ...${shared} shown=${bytes} lines=${[["Disk free", node.disk_free, node.disk_free_details]]} />
      <${Lines} title="Open files" ...${shared} shown=${count} isWhole lines=${[["File descriptors", node.fd_used, node.fd_used_details], ["Sockets", node.sockets_used, node.sockets_used_details]]} />
    </div><//>`;
}

export function Node() {
  const [range, setRange] = useState(1);
  const nodes = usePoll(`nodes?${rangeQuery(range)}`);
  const about = usePoll("overview?disable_stats=true&columns=node"); // of several nodes, the one that answers
  const view = usePoll("leveret/status");
  const turns = usePoll("leveret/turns");
  const node = about.data && Array.isArray(nodes.data) ? nodes.data.find((one) => one.name === about.data.node) : null;
  const status = view.data;
  const { counters = {}, usage, blocked, held, slow_consumers, ...rest } = status || {};
  return html`
    <h1>Node ${node && named(node.name)}</h1>
    <${Waiting} view=${view} what="the node" />
    ${status && html`
      <div class="tiles">
        <${Tile} label="Up for" value=${duration(status.uptime_ms)} kind="strong" />
        ${node && html`<${Tile} label="Memory" value=${bytes(node.mem_used)} /><${Tile} label="Disk free" value=${bytes(node.disk_free)} />
          <${Tile} label="File descriptors" value=${count(node.fd_used)} /><${Tile} label="Sockets" value=${count(node.sockets_used)} />`}
      </div>
      ${node && html`<${Charts} node=${node} at=${nodes.at} range=${range} setRange=${setRange} />`}
      <${Panel} title="Counters since the start"><${Facts} rows=${Object.entries(counters).map(([name, value]) => [words(name), count(value)])} /><//>
      ${turns.data && html`<${Panel} title="How late the event loop was"><${Facts} rows=${turns.data.counts.map((times, index) => {
        const bound = turns.data.bounds_ms[index];
        return [bound === undefined ? "more" : `up to ${bound} ms`, times ? `${count(times)} ×` : ""];
      })} /><//>`}
      ${node && (node.config_files || []).length > 0 && html`<${Panel} title="Configuration files">
        <p>${node.config_files.join(", ")}</p>
        <${Button} label="Read them again …" onClick=${reload} why=${lacksTag()} /><//>`}
      <${Panel} title="Status"><${Facts} rows=${Object.entries(rest).map(([name, value]) => [words(name), shown(name, value)])} /><//>
      ${node && html`<${Panel} title="Process"><${Facts} rows=${[
        ["Process", node.os_pid],
        ["Processors", count(node.processors)],
        ["Memory limit", node.mem_limit ? bytes(node.mem_limit) : "none"],
        ["Disk limit", node.disk_free_limit ? bytes(node.disk_free_limit) : "none"],
        ["Journal", node.db_dir],
        ["Log", html`${(node.log_files || []).join(", ")} <a href=${to(["log"])}>its latest lines</a>`],
      ]} /><//>`}
    `}`;
}
