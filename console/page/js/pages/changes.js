// What was changed by whom: earlier versions of policies, users and limits, compared, and put back.
import { act, ago, bold, Chip, Choice, column, Differs, dropped, html, moment, named, Panel, refine, Rows, secondStep, to, usePoll, Waiting } from "../common.js";

const KINDS = [["", "all"], ["policy", "policies"], ["operator-policy", "operator policies"], ["user", "users"], ["limits", "limits of virtual hosts"]];
const LINKS = { policy: (one) => to(["policies"], { name: one.name }), user: (one) => to(["users", one.name]), limits: (one) => to(["vhosts", one.vhost]) };

function What({ one }) {
  const link = LINKS[one.kind];
  const name = named(one.name || one.vhost);
  return html`${one.kind} ${link ? html`<a href=${link(one)}>${name}</a>` : name}${one.name && one.vhost && html` <small>in ${one.vhost}</small>`}`;
}

export function Changes({ query }) {
  const wanted = new URLSearchParams(["kind", "name", "vhost"].filter((key) => query[key]).map((key) => [key, query[key]]));
  const view = usePoll(`leveret/versions?${wanted}`);
  const rows = view.rows;
  const batches = new Map(), firsts = new Map();
  for (const one of rows) {
    batches.set(one.batch, (batches.get(one.batch) || 0) + 1);
    firsts.set(one.batch, one.id);
  }
  const restore = async (one, all) => {
    const what = all ? `everything that "${one.command}" changed` : `${one.kind} ${one.name || one.vhost}`;
    const text = `${what}: as it was before ${moment(one.at_ms)}. Messages that were dropped do not come back.`;
    const target = `leveret/preview/versions/${one.id}`;
    if (!(await secondStep({ target, body: { all }, lost: dropped, name: String(one.id), title: "Put back an earlier version", text, verb: "Put back" }))) return;
    if (await act(`It is as before: ${what}.`, "POST", `leveret/versions/${one.id}/restore`, { body: { all } })) view.reload();
  };
  const columns = [
    { title: "What", cell: (one) => html`<${What} one=${one} />` },
    column("Change", "change", bold),
    { title: "Before → after", cell: (one) => html`<${Differs} rows=${one.differs} />` },
    { title: "By", cell: (one) => html`${named(one.by || "the broker itself")}<br /><small>${one.command}</small>` },
    column("When", "at_ms", ago),
    {
      title: "",
      cell: (one) => html`<span class="buttons"><button onClick=${() => restore(one, false)}>Put back what was before …</button>
        ${batches.get(one.batch) > 1 && firsts.get(one.batch) === one.id && html`<button onClick=${() => restore(one, true)}>All ${batches.get(one.batch)} of it …</button>`}</span>`,
    },
  ];
  const narrowed = query.name || query.vhost;
  return html`
    <h1>Changes</h1>
    <p class="dim">The last 1,000 changes (at most 4 MiB) of policies, users and limits, also by imports and reloads. Queues, exchanges and messages that were deleted cannot be put back.</p>
    <div class="tools">
      <${Choice} label="Of" value=${query.kind || ""} options=${KINDS} onChange=${(kind) => refine({ kind })} />
      ${narrowed && html`<${Chip} name=${narrowed} label="Of all names" onClose=${() => refine({ name: "", vhost: "" })} />`}
    </div>
    <${Waiting} view=${view} what="changes" />
    <${Panel} title="The newest first">
      ${rows.length ? html`<${Rows} rows=${rows} columns=${columns} caption="Changes" by="id" />` : view.data && html`<p class="empty">Nothing was changed since this broker keeps versions.</p>`}
    <//>`;
}
