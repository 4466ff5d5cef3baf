// Bindings of an exchange or a queue: where from, where to, and how to end them.
import { html } from "./lib.js";
import { act, ask, exchangeSegment, path } from "./api.js";
import { code, column, table, WIDE } from "./columns.js";
import { CommandForm } from "./form.js";
import { ExchangeLink, QueueLink } from "./links.js";
import { Rows } from "./list.js";
import { confirm, Danger } from "./parts.js";

const kindOf = (binding) => (binding.destination_type === "queue" ? "q" : "e");
const place = (one) => path("bindings", one.vhost, "e", exchangeSegment(one.source), kindOf(one), one.destination, one.properties_key);

/** `side`: "source" or "destination", whichever is not the page's own. `why`: the reason why the user may not end one. */
export function Bindings({ bindings, side, reload, empty, why = "" }) {
  const unbind = async (one) => {
    const from = path("exchanges", one.vhost, exchangeSegment(one.source));
    const [source, left] = await Promise.all([ask("GET", from), ask("GET", `${from}/bindings/source`)]).catch(() => [{}, []]);
    const says = source.auto_delete && left.length === 1 ? [`The exchange ${one.source} is deleted with its last binding`] : [];
    const text = `Messages of ${one.source || "the default exchange"} with the key "${one.routing_key}" will no longer reach ${one.destination}.`;
    if (!(await confirm({ title: "End this binding", text, says, verb: "Unbind" }))) return;
    if (await act("The binding is ended.", "DELETE", place(one))) reload();
  };
  const columns = [
    {
      title: side === "source" ? "From" : "To",
      cell: (one) =>
        side === "source"
          ? html`<${ExchangeLink} vhost=${one.vhost} name=${one.source} />`
          : one.destination_type === "queue"
            ? html`<${QueueLink} vhost=${one.vhost} name=${one.destination} /> <small>queue</small>`
            : html`<${ExchangeLink} vhost=${one.vhost} name=${one.destination} /> <small>exchange</small>`,
    },
    column("Routing key", "routing_key", code),
    column("Arguments", "arguments", table, WIDE),
    { title: "", cell: (one) => one.source !== "" && html`<${Danger} label="Unbind" onClick=${() => unbind(one)} why=${why} />` },
  ];
  return html`<${Rows} rows=${bindings} columns=${columns} caption="Bindings" keyOf=${place} empty=${empty} />
    ${why && bindings.length > 0 && html`<p class="dim">Unbind: ${why}.</p>`}`;
}

/** `queue` or `source`: the end that is the page's own. */
export function Bind({ vhost, queue, source, reload, why = "" }) {
  const ends = queue === undefined ? "destination destination_type" : "source";
  const bind = async ({ destination = queue, destination_type: kind = "queue", source: from = source, ...body }) => {
    const done = await act("Bound.", "POST", path("bindings", vhost, "e", exchangeSegment(from), kind[0], destination), { body });
    if (done) reload();
    return Boolean(done);
  };
  return html`<${CommandForm} of="bind" only=${`${ends} routing_key arguments`} name="Bind" verb="Bind" onSubmit=${bind} why=${why} />`;
}
