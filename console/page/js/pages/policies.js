// Policies and operator policies: in the order in which they win, with what they say.
import { html, useState } from "../lib.js";
import { act, path, usePoll } from "../api.js";
import { Form } from "../form.js";
import { List } from "../list.js";
import { confirm, Danger, Fold, Panel, Table } from "../parts.js";
import { isAdministrator, isPolicymaker, state } from "../state.js";

const APPLY = ["queues", "exchanges", "all", "classic_queues", "quorum_queues", "streams"];

export function Policies({ query }) {
  return html`
    <h1>Policies</h1>
    <p class="dim">Of those that match a name the one with the highest priority counts. What a queue got in the end, and why, is on its own page.</p>
    <${Kind} title="Policies" base="policies" query=${query} may=${isPolicymaker()} example='{"max-length": 1000}' />
    <${Kind} title="Operator policies" base="operator-policies" query=${query} may=${isAdministrator()} example='{"max-length": 100000}' />
  `;
}

function Kind({ title, base, query, may, example }) {
  const [turn, setTurn] = useState(0);
  const [edited, setEdited] = useState(null);
  const one = title.slice(0, -1).toLowerCase() === "policie" ? "policy" : "operator policy";
  const reload = () => setTurn((count) => count + 1);
  const remove = async (policy) => {
    const text = `${policy.name} in ${policy.vhost}, for ${policy["apply-to"]} like ${policy.pattern}. They change at once.`;
    if (!(await confirm({ title: `Delete this ${one}`, text, verb: "Delete" }))) return;
    if (await act(`${policy.name} is deleted.`, "DELETE", path(base, policy.vhost, policy.name))) reload();
  };
  const columns = [
    { title: "Name", sort: "name", cell: (policy) => html`<span class="name">${policy.name}</span>` },
    { title: "Virtual host", sort: "vhost", isWide: true, cell: (policy) => html`<span class="name">${policy.vhost}</span>` },
    { title: "Pattern", sort: "pattern", cell: (policy) => html`<code>${policy.pattern}</code>` },
    { title: "Applies to", isWide: true, sort: "apply-to", cell: (policy) => policy["apply-to"] },
    { title: "Priority", sort: "priority", isNumber: true, cell: (policy) => policy.priority },
    { title: "Definition", cell: (policy) => html`<${Table} value=${policy.definition} />` },
    {
      title: "",
      cell: (policy) => may && html`<span class="buttons"><button type="button" onClick=${() => setEdited(policy)}>Edit</button>
        <${Danger} label="Delete …" onClick=${() => remove(policy)} /></span>`,
    },
  ];
  return html`<${Panel} title=${title}>
    <${List} key=${turn} base=${base} query=${{ ...query, sort: query.sort || "priority", reverse: query.sort ? query.reverse : "1" }} columns=${columns} caption=${title} what=${one} isPaged=${false}
      empty=${`There is no ${one}.`} keyOf=${(policy) => path(policy.vhost, policy.name)} />
    ${may && html`<${Fold} key=${edited ? path(edited.vhost, edited.name) : ""} title=${edited ? `Edit ${edited.name}` : `Add or replace a ${one}`.replace("a o", "an o")} isOpen=${Boolean(edited)}>
      <${Edit} base=${base} policy=${edited} example=${example} done=${() => { setEdited(null); reload(); }} /><//>`}
  <//>`;
}

function Edit({ base, policy, example, done }) {
  const fields = [
    { name: "name", label: "Name", required: true, value: policy && policy.name },
    { name: "vhost", label: "Virtual host", required: true, value: policy ? policy.vhost : state.vhost || "/" },
    { name: "pattern", label: "Pattern", required: true, value: policy && policy.pattern, hint: "a regular expression; ^orders\\. is every name that begins so" },
    { name: "apply", label: "Applies to", options: APPLY, value: policy ? policy["apply-to"] : "queues" },
    { name: "priority", label: "Priority", type: "number", value: policy ? policy.priority : 0 },
    { name: "definition", label: "Definition", type: "json", rows: 4, required: true, value: policy ? JSON.stringify(policy.definition, null, 1) : "", hint: `like ${example}` },
  ];
  const save = async (values) => {
    const body = { pattern: values.pattern, definition: values.definition, priority: values.priority ?? 0, "apply-to": values.apply };
    const saved = await act(`${values.name} holds from now on.`, "PUT", path(base, values.vhost, values.name), { body });
    if (saved) done();
    return Boolean(saved);
  };
  return html`<${Form} name=${`Save ${base}`} fields=${fields} verb="Save" onSubmit=${save} />`;
}
