// Exchanges: what is bound to them, and publishing.
import { asIs, Badge, column, count, Danger, ExchangeLink, exchangeSegment, EXTRA, Facts, Fold, go, Head, html, List, named, OF_VHOST, Panel, path, rate, remove, table, Table, to, useMay, usePoll } from "../common.js";
import { Bind, Bindings } from "../bindings.js";
import { Rates, useRange } from "../chart.js";
import { CommandForm } from "../form.js";
import { Publish } from "../publish.js";

function features(exchange) {
  const alternate = exchange.arguments?.["alternate-exchange"];
  return [
    [exchange.durable, "D", "durable: outlives a restart"],
    [exchange.auto_delete, "AD", "auto-delete: goes with its last binding"],
    [exchange.internal, "I", "internal: clients cannot publish to it"],
    [alternate !== undefined, "AE", `what nobody gets goes to ${alternate}`],
    [exchange.policy, exchange.policy, "policy"],
  ].filter(([isSo]) => isSo).map(([, text, title]) => html`<${Badge} key=${text} text=${text} title=${title} />`);
}

const COLUMNS = [
  { title: "Name", sort: "name", cell: (one) => html`<${ExchangeLink} vhost=${one.vhost} name=${one.name} />` },
  OF_VHOST,
  column("Type", "type", asIs),
  { title: "Features", cell: features },
  column("In", "message_stats.publish_in_details.rate", rate),
  column("Out", "message_stats.publish_out_details.rate", rate),
  column("Published in all", "message_stats.publish_in", (value) => count(value ?? 0), { isNumber: true, isExtra: true }),
  column("Policy", "policy", named, EXTRA),
  column("Arguments", "arguments", table, EXTRA),
];

export function Exchanges({ query }) {
  return html`
    <h1>Exchanges</h1>
    <${List} base="exchanges" query=${query} columns=${COLUMNS} caption="Exchanges" what="exchange" empty="No exchanges."
      by="vhost name" />
    <${Fold} title="Add an exchange"><${Add} /><//>
  `;
}

const RATES = [["publish_in", "In"], ["publish_out", "Out"]];
const OWN = { durable: { value: true } };
const Add = () => html`<${CommandForm} of="declare-exchange" only="exchange vhost type durable auto_delete internal arguments" own=${OWN} name="Add an exchange" verb="Add" done=${({ exchange }) => `Exchange ${exchange} is there.`} />`;

export function Exchange({ names: [vhost, segment] }) {
  const name = segment === exchangeSegment("") ? "" : segment;
  const place = path("exchanges", vhost, segment);
  const { query, range, choice } = useRange();
  const view = usePoll(`${place}?${query}`);
  const from = usePoll(`${place}/bindings/source`);
  const into = usePoll(`${place}/bindings/destination`);
  const may = useMay(vhost, "exchange", name);
  const exchange = view.data;
  const { isHere } = view;
  const reload = () => {
    from.reload();
    into.reload();
  };
  const outgoing = from.rows;
  const incoming = into.rows;
  const end = async () => {
    const text = `${name}. Publishing to it will fail. This cannot be undone.`;
    if (await remove("exchanges", "exchange", [vhost, name], { text })) go(["exchanges"]);
  };
  return html`
    <${Head} list=${["exchanges", "Exchanges"]} what="Exchange" name=${name} shown=${name || "(default)"} vhost=${vhost} view=${view}>${isHere && features(exchange)}<//>
    ${isHere && html`
      <${Panel} title="Details" aside=${choice}>
        ${exchange.message_stats && html`<div class="charts"><${Rates} id=${place} at=${view.at} range=${range} since=${exchange.leveret?.sampled_since_ms} stats=${exchange.message_stats} names=${RATES} /></div>`}
        <${Facts} rows=${[
        ["Type", exchange.type],
        ["Policy", exchange.policy],
        ["Arguments", html`<${Table} value=${exchange.arguments} />`],
      ]} /><//>
      <${Panel} title="Goes to">
        ${name === ""
          ? html`<p class="empty">Every queue is bound to it by its name.</p>`
          : html`<${Bindings} side="destination" bindings=${outgoing} reload=${reload} why=${may("read")} empty="Nothing: what is published here is dropped, or returned." />
            <${Fold} title="Add a binding"><${Bind} vhost=${vhost} source=${name} reload=${reload} why=${may("read")} /><//>`}
      <//>
      ${incoming.length > 0 && html`<${Panel} title="Comes from"><${Bindings} side="source" bindings=${incoming} reload=${reload} empty="" why=${may("write")} /><//>`}
      <${Fold} title="Publish to this exchange"><${Publish} vhost=${vhost} exchange=${name} /><//>
      ${name !== "" && !name.startsWith("amq.") && html`<${Panel} title="Delete"><${Danger} label="Delete the exchange …" onClick=${end} why=${may("configure")} /><//>`}
    `}`;
}
