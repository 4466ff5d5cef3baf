// The page of leased queues, which comes with the resource `leveret/leases`.
import { act, confirm, count, Danger, duration, html, moment, named, Panel, path, QueueLink, Rows, several, useMay, usePoll, Waiting } from "../common.js";

export function Leases() {
  const view = usePoll("leveret/leases");
  const queues = view.data?.items || [];
  const breakLease = async (queue, lease) => {
    const text = `The message with bookmark ${lease.bookmark} of ${queue.queue} is taken from ${lease.consumer || "its holder"} and delivered again, perhaps to another.`;
    if (!(await confirm({ title: "Break this lease", text, verb: "Break" }))) return;
    const body = { bookmark: lease.bookmark, option: "cancel" };
    if (await act("The lease is broken.", "POST", path("leveret", "leases", queue.vhost, queue.queue, "discard"), { body })) view.reload();
  };
  return html`
    <h1>Leases</h1>
    <p class="dim">Leased queues: which client has which message, and until when. After that it is ready again.</p>
    <${Waiting} view=${view} what="leases" />
    ${view.data && !queues.length && html`<p class="empty">This broker has no leased queue.</p>`}
    ${queues.map((queue) => html`<${Of} key=${`${queue.vhost}\n${queue.queue}`} queue=${queue} breakLease=${breakLease} />`)}`;
}

function Of({ queue, breakLease }) {
  const why = useMay(queue.vhost, "queue", queue.queue)("read");
  const names = queue.leases.length ? Object.keys(queue.leases[0]) : [];
  const columns = [
    ...names.map((name) => ({ title: name.replace(/_ms$/, "").replaceAll("_", " "), isNumber: typeof queue.leases[0][name] === "number", cell: (one) => cell(name, one[name]) })),
    ...(names.includes("bookmark") ? [{ title: "", cell: (one) => html`<${Danger} label="Break …" onClick=${() => breakLease(queue, one)} why=${why} />` }] : []),
  ];
  return html`<${Panel} id=${`leases-of-${queue.vhost}-${queue.queue}`}
    title=${html`<${QueueLink} vhost=${queue.vhost} name=${queue.queue} />`} aside=${html`<span>${several(queue.leased, "lease")}, ${count(queue.ready)} ready</span>`}>
    <${Rows} rows=${queue.leases} columns=${columns} caption=${`Leases of ${queue.queue}`} keyOf=${(one) => JSON.stringify(one)} empty="No client holds a lease." />
    ${why && queue.leases.length > 0 && html`<p class="dim">Break: ${why}.</p>`}
  <//>`;
}

function cell(name, value) {
  if (name.endsWith("_ms") && typeof value === "number") return value > 1e12 ? html`<time>${moment(value)}</time>` : duration(value);
  return named(typeof value === "string" ? value : JSON.stringify(value));
}
