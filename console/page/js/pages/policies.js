// Policies and operator policies: in the order in which they win, with what they say.
import { act, asIs, bold, Button, code, column, Danger, dropped, Fold, html, isAdministrator, isPolicymaker, lacksTag, List, named, number, OF_VHOST, Panel, path, plain, remove, Rows, secondStep, several, state, table, to, usePoll, useState, WIDE } from "../common.js";
import { CommandForm } from "../form.js";

export function Policies({ query }) {
  return html`
    <h1>Policies</h1>
    <p class="dim">Of those that match a name the one with the highest priority counts. What a queue got in the end, and why, is on its own page.
      ${isAdministrator() && html` <a href=${to(["changes"], { kind: "policy" })}>Earlier versions</a>`}</p>
    <${Kind} title="Policies" base="policies" query=${query} why=${lacksTag("policymaker")} />
    <${Kind} title="Operator policies" base="operator-policies" query=${query} why=${lacksTag()} />
    ${isPolicymaker() && html`<${Rules} vhost=${state.vhost || "/"} />`}
    <${Fold} title="What would a draft change?"><${Draft} vhost=${state.vhost || "/"} /><//>
  `;
}

function Rules({ vhost }) {
  const view = usePoll(path("leveret", "rules", vhost), { isOnce: true });
  const rows = view.rows;
  const columns = [
    { title: "Rule", cell: (one) => html`${one.kind} ${named(one.name)}` },
    column("For", "pattern", code),
    column("Priority", "priority", number, WIDE),
    column("Says", "settings", table),
    column("From", "origin", asIs, WIDE),
  ];
  return html`<${Panel} title="All rules, the strongest first" aside=${html`in ${named(vhost)}`}>
    <${Rows} rows=${rows} columns=${columns} caption="Rules" by="kind vhost name" empty="No rule is set: everything is as by default." />
  <//>`;
}

function Draft({ vhost }) {
  const [found, setFound] = useState(null);
  const own = { name: { label: "For this queue or address", required: true }, text: { label: "Settings in TOML, added to those in force", type: "textarea", rows: 5, value: '[[address-setting]]\nmatch = "#"\n' } };
  const look = async (values) => {
    const done = await act("", "POST", path("leveret", "draft", vhost), { body: values });
    if (done) setFound(done.value);
    return false;
  };
  const columns = [
    column("Setting", "name", code),
    column("Now", "now", plain),
    column("Then", "draft", bold),
    column("Given by", "rule", asIs, WIDE),
  ];
  return html`<${CommandForm} of="draft" only="name text" own=${own} name="Draft" verb="What would change?" onSubmit=${look} why=${lacksTag()} />
    <div aria-live="polite">${found && html`<p>In ${named(vhost)}:</p>
      <${Rows} rows=${found.differs} columns=${columns} caption="What would be other" by="vhost name" empty="Nothing, there." />
      <p class="dim">${several(found.queues.length + found.more, "queue")} would change in all. Nothing is in force yet.</p>`}</div>`;
}

function Kind({ title, base, query, why }) {
  const [turn, setTurn] = useState(0);
  const [edited, setEdited] = useState(null);
  const one = base === "policies" ? "policy" : "operator policy";
  const reload = () => setTurn((count) => count + 1);
  const end = async (policy) => {
    const text = `${policy.name} in ${policy.vhost}, for ${policy["apply-to"]} like ${policy.pattern}. They change at once.`;
    if (await remove(base, one, [policy.vhost, policy.name], { body: { clear: true }, lost: dropped, text })) reload();
  };
  const columns = [
    column("Name", "name"),
    OF_VHOST,
    column("Pattern", "pattern", code),
    column("Applies to", "apply-to", asIs, WIDE),
    column("Priority", "priority", number),
    column("Definition", "definition", table),
    {
      title: "",
      cell: (policy) => html`<span class="buttons"><${Button} label="Edit" onClick=${() => setEdited(policy)} why=${why} />
        <${Danger} label="Delete …" onClick=${() => end(policy)} why=${why} /></span>`,
    },
  ];
  return html`<${Panel} title=${title}>
    <${List} key=${turn} base=${base} query=${{ ...query, sort: query.sort || "priority", reverse: query.sort ? query.reverse : "1" }} columns=${columns} caption=${title} what=${one} isPaged=${false}
     empty=${`There is no ${one}.`} by="vhost name" />
    ${why && html`<p class="dim">Edit, delete: ${why}.</p>`}
    <${Fold} key=${edited ? path(edited.vhost, edited.name) : ""} title=${edited ? `Edit ${edited.name}` : `Add or replace a ${one}`.replace("a o", "an o")} isOpen=${Boolean(edited)}>
      <${Edit} base=${base} policy=${edited} why=${why} done=${() => { setEdited(null); reload(); }} /><//>
  <//>`;
}

function Edit({ base, policy, why, done }) {
  const own = { priority: { type: "number" }, definition: { rows: 4 } };
  const save = async ({ vhost, name, ...body }) => {
    const isSure = await secondStep({
      target: path("leveret", "preview", base, vhost, name),
      body,
      isQuiet: true,
      lost: dropped,
      name,
      title: `Save ${name}`,
      text: "With this policy, at once:",
      verb: "Save all the same",
    });
    if (!isSure) return false;
    const { apply_to, priority = 0, ...rest } = body;
    const saved = await act(`${name} holds from now on.`, "PUT", path(base, vhost, name), { body: { ...rest, priority, "apply-to": apply_to } });
    if (saved) done();
    return Boolean(saved);
  };
  return html`<${CommandForm} of=${`${base} set`} only="name vhost pattern apply_to priority definition" values=${policy || {}} own=${own} name=${`Save ${base}`} verb="Save" onSubmit=${save} why=${why} />`;
}
