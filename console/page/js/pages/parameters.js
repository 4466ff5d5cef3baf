// Parameters of virtual hosts and of the broker, as clients and tools set them; and what this broker tells of feature flags.
import { act, asIs, code, column, confirm, Danger, Fold, html, lacksTag, List, note, OF_VHOST, Panel, parsed, path, Rows, usePoll, useState, Waiting, WIDE } from "../common.js";
import { CommandForm } from "../form.js";

/** Components that have a page of their own, which shows first what a change drops or refuses. */
const PAGES = { operator_policy: "Policies", "vhost-limits": "Virtual hosts" };
const whyNot = ({ component }) => PAGES[component] && `on the page ${PAGES[component]}, which shows first what it does`;
/** Of virtual hosts or of the whole broker: the path of one, what it is called, and what it has beside its value. */
const KINDS = {
  parameters: {
    place: (one) => path("parameters", one.component, one.vhost, one.name),
    called: (one) => `${one.component} ${one.name} in ${one.vhost}`,
    only: "name component vhost value",
    columns: [
      column("Component", "component"),
      OF_VHOST,
    ],
  },
  "global-parameters": { place: (one) => path("global-parameters", one.name), called: (one) => one.name, only: "name value", columns: [] },
};

function Kind({ title, base, query, what }) {
  const [turn, setTurn] = useState(0);
  const { place, called, only, columns } = KINDS[base];
  const why = lacksTag("policymaker");
  const changed = (done) => done && setTurn((count) => count + 1);
  const remove = async (one) => {
    if (!(await confirm({ title: `Delete this ${what}`, text: `${called(one)}. This cannot be undone.`, verb: "Delete" }))) return;
    changed(await act(`${one.name} is deleted.`, "DELETE", place(one)));
  };
  const save = async ({ value, ...one }) => {
    const given = parsed(value);
    const fault = given === undefined ? "The value is not JSON: a text stands in quotes." : whyNot(one) && `Set it ${whyNot(one)}.`;
    if (fault) {
      note(fault, true);
      return false;
    }
    const done = await act(`${one.name} is set.`, "PUT", place(one), { body: { value: given } });
    changed(done);
    return Boolean(done);
  };
  const all = [
    column("Name", "name"),
    ...columns,
    column("Value", "value", code),
    { title: "", cell: (one) => html`<${Danger} label="Delete …" onClick=${() => remove(one)} why=${whyNot(one)} />` },
  ];
  const own = { value: { type: "textarea", hint: 'JSON, like {"uri": "amqp://other"} or "text"' } };
  return html`<${Panel} title=${title}>
    ${why ? html`<p class="empty">Hidden: ${why}.</p>` : html`<${List} key=${turn} base=${base} query=${query} columns=${all} caption=${title} what=${what} isPaged=${false} empty=${`There is no ${what}.`} keyOf=${place} />`}
    <${Fold} title=${`Set a ${what}`}><${CommandForm} of=${`${base} set`} only=${only} own=${own} name=${`Set a ${what}`} verb="Set" onSubmit=${save} why=${why} /><//>
  <//>`;
}

/** Feature flags: all of them are on, so there is nothing to set. */
function FeatureFlags() {
  const why = lacksTag();
  const view = usePoll(why ? null : "feature-flags", { isOnce: true });
  const rows = view.rows;
  const columns = [
    column("Name", "name"),
    column("State", "state", asIs),
    column("Stability", "stability", asIs, WIDE),
    column("What it is", "desc", asIs, WIDE),
  ];
  return html`<${Panel} title="Feature flags">
    ${why ? html`<p class="empty">Hidden: ${why}.</p>` : html`<p class="dim">Those that RabbitMQ's tools ask for. They cannot be changed here.</p>
      <${Waiting} view=${view} what="feature flags" />
      ${rows.length > 0 && html`<${Rows} rows=${rows} columns=${columns} caption="Feature flags" />`}`}
  <//>`;
}

export function Parameters({ query }) {
  return html`<h1>Parameters</h1>
    <p class="dim">Policies and limits have pages of their own. Shovels and federation links are kept, and do not run here.</p>
    <${Kind} title="Of virtual hosts" base="parameters" query=${query} what="parameter" />
    <${Kind} title="Of the broker" base="global-parameters" query=${query} what="global parameter" />
    <${FeatureFlags} />`;
}
