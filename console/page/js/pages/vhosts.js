// Virtual hosts and their limits.
import { act, asIs, code, column, count, Danger, EXTRA, Facts, Fold, go, Head, html, isAdministrator, lacksTag, List, number, Panel, path, remove, Rows, set, state, to, usePoll, UserLink, useState, VhostLink, WIDE } from "../common.js";
import { lengthLines, Lines, MESSAGE_RATES, Rates, useRange } from "../chart.js";
import { CommandForm } from "../form.js";
import { Limits } from "../limits.js";

const defaultType = ({ default_queue_type: type }) => (type === "undefined" ? "classic" : type);
const COLUMNS = [
  { title: "Name", sort: "name", cell: (one) => html`<${VhostLink} name=${one.name} />` },
  column("Description", "description", asIs, WIDE),
  column("Ready", "messages_ready", count),
  column("Unacked", "messages_unacknowledged", count),
  column("Tags", "tags", (tags = []) => tags.join(", "), EXTRA),
  { title: "Default queue type", isWide: true, cell: defaultType },
];

export function VirtualHosts({ query }) {
  const [turn, setTurn] = useState(0);
  const add = async ({ name, default_queue_type: type, ...body }) => {
    const done = await act(`Virtual host ${name} is there.`, "PUT", path("vhosts", name), { body: { ...body, ...(type ? { default_queue_type: type } : {}) } });
    if (done) setTurn((number) => number + 1);
    return Boolean(done);
  };
  return html`
    <h1>Virtual hosts</h1>
    <${List} key=${turn} base="vhosts" query=${query} columns=${COLUMNS} caption="Virtual hosts" what="virtual host" empty="None." />
    <${Fold} title="Add a virtual host"><${CommandForm} of="vhosts add" only="name description default_queue_type" name="Add a virtual host" verb="Add" onSubmit=${add} why=${lacksTag()} /><//>`;
}

export function VirtualHost({ names: [name] }) {
  const place = path("vhosts", name);
  const { query, range, choice } = useRange();
  const view = usePoll(isAdministrator() ? `${place}?${query}` : `vhosts?${query}`);
  const permissions = usePoll(isAdministrator() ? `${place}/permissions` : null);
  const limits = usePoll(path("vhost-limits", name));
  const one = Array.isArray(view.data) ? view.data.find((other) => other.name === name) : view.data;
  const isHere = one && view.isHere;
  const limited = limits.rows[0]?.value;
  const end = async () => {
    if (!(await remove("vhosts", "virtual host", [name], { typed: name }))) return;
    if (state.vhost === name) set({ vhost: "" });
    go(["vhosts"]);
  };
  const columns = [
    { title: "User", cell: (row) => html`<${UserLink} name=${row.user} />` },
    column("Configure", "configure", code),
    column("Write", "write", code),
    column("Read", "read", code),
  ];
  const rows = permissions.rows;
  return html`
    <${Head} list=${["vhosts", "Virtual hosts"]} what="Virtual host" name=${name} view=${view} />
    ${view.data && !one && html`<p class="empty" role="alert">It is not here, or you have no permissions in it.</p>`}
    ${isHere && html`
      <${Panel} title="Details" aside=${choice}>
        <div class="charts">
          <${Lines} title="Messages" id=${place} at=${view.at} range=${range} shown=${count} isWhole lines=${lengthLines(one)} />
          <${Rates} id=${place} at=${view.at} range=${range} stats=${one.message_stats} names=${MESSAGE_RATES} />
        </div>
        <${Facts} rows=${[
        ["Description", one.description],
        ["Tags", (one.tags || []).join(", ")],
        ["Default queue type", defaultType(one)],
        ["Tracing", one.tracing ? "on" : "off"],
        ["Ready", count(one.messages_ready ?? 0)],
        ["Unacknowledged", count(one.messages_unacknowledged ?? 0)],
      ]} /><//>
      <${Panel} title="Who may do what">
        <${Rows} rows=${rows} columns=${columns} caption="Permissions" by="user" empty=${lacksTag() ? `Hidden: ${lacksTag()}.` : "No user has permissions here."} />
      <//>
      ${limits.data && html`<${Limits} of="vhosts limits" name=${name} limits=${limited} preview=${path("leveret", "preview", "vhost-limits", name)} reload=${limits.reload} why=${lacksTag()} />`}
      ${isAdministrator() && html`<p><a href=${to(["changes"], { kind: "limits", vhost: name })}>Earlier limits</a></p>`}
      <${Panel} title="Delete"><${Danger} label="Delete the virtual host …" onClick=${end} why=${lacksTag()} /><//>
    `}`;
}
