// Everything that is declared and set, out and in. An import is looked through before it is sent.
import { act, ask, Button, Choice, column, Differs, dropped, html, lacksTag, named, note, number, Panel, path, Rows, secondStep, several, useEffect, usePoll, useState, Why } from "../common.js";

const STATES = { new: "new", changed: "replaced", stays: "stays as it is here" };

/** What an import would do, object by object. */
function Difference({ found }) {
  const columns = [
    { title: "Section", cell: (row) => row.section.replaceAll("_", " ") },
    column("New", "new", number),
    column("Replaced", "changed", number),
    column("Other, stays", "stays", number),
    column("The same", "same", number),
  ];
  const objects = [
    { title: "Object", cell: (one) => named(one.name.filter(Boolean).join(" / ")) },
    { title: "Section", cell: (one) => one.section.replaceAll("_", " ") },
    { title: "Is", cell: (one) => html`<b>${STATES[one.state]}</b>` },
    { title: "Differs", cell: (one) => html`<${Differs} rows=${one.differs} />` },
  ];
  return html`
    <${Rows} rows=${found.sections} columns=${columns} caption="What the file holds" by="section" />
    ${found.objects.length > 0 && html`<${Rows} rows=${found.objects} columns=${objects} caption="What is other than here" keyOf=${(one) => [one.section, ...one.name].join("\n")} />`}
    ${found.unlisted > 0 && html`<p class="dim">and ${several(found.unlisted, "other object")}</p>`}
    ${[...found.faults, ...found.remarks].length > 0 && html`<ul class="says">${[...found.faults, ...found.remarks].map((one) => html`<li key=${one}>${one}</li>`)}</ul>`}`;
}

/** A virtual host, or all of them: null. */
const Which = ({ label, whole, names, vhost, onChange }) => html`<${Choice} label=${label} value=${vhost === null ? "" : `v${vhost}`}
  options=${[["", whole], ...names.map((name) => [`v${name}`, name])]} onChange=${(value) => onChange(value === "" ? null : value.slice(1))} />`;

export function Definitions() {
  const [draft, setDraft] = useState(null);
  const [file, setFile] = useState(null);
  const [into, setInto] = useState(null);
  const vhosts = usePoll("vhosts?disable_stats=true&columns=name", { isOnce: true });
  const [vhost, setVhost] = useState(null);
  const names = vhosts.rows.map((one) => one.name);
  const save = async () => {
    const done = await act("", "GET", vhost === null ? "definitions" : path("definitions", vhost));
    if (!done) return;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([JSON.stringify(done.value, null, 1)], { type: "application/json" }));
    link.download = `leveret-definitions-${vhost === null ? "" : `${vhost.replace(/[^A-Za-z0-9]+/g, "-")}-`}${new Date().toISOString().slice(0, 10)}.json`;
    link.click();
    URL.revokeObjectURL(link.href);
    note(vhost === null ? "The definitions are in your downloads. They hold hashes of passwords: keep them safe." : "The definitions are in your downloads.");
  };
  const preview = path("leveret", "preview", "definitions", ...(into === null ? [] : [into]));
  useEffect(() => {
    const asked = { isNewest: true };
    setDraft(null);
    if (file) compare(asked);
    return () => (asked.isNewest = false);
  }, [file, into]);
  const compare = async (asked) => {
    try {
      const given = JSON.parse(await file.text());
      if (given === null || typeof given !== "object" || Array.isArray(given)) throw new SyntaxError();
      const found = await ask("POST", preview, { body: given });
      if (asked.isNewest) setDraft({ name: file.name, given, found });
    } catch (error) {
      note(error instanceof SyntaxError ? `${file.name} holds no definitions: it is not a JSON object.` : error.message, true);
    }
  };
  const send = async () => {
    const text = `${draft.name}: ${draft.found.objects.length + draft.found.unlisted} objects are not as ${into === null ? "here" : `in ${into}`}. Nothing is deleted. Either all of it is taken or nothing.`;
    if (!(await secondStep({ target: preview, body: draft.given, lost: dropped, name: draft.name, title: "Import these definitions", text, verb: "Import" }))) return;
    if (await act("The definitions are imported.", "POST", `${path("definitions", ...(into === null ? [] : [into]))}?all-or-nothing=true`, { body: draft.given })) setDraft(null);
  };
  return html`
    <h1>Definitions</h1>
    <${Panel} title="Export">
      <p>Virtual hosts, users, permissions, exchanges, queues, bindings, policies and parameters as RabbitMQ's JSON; no messages. Of one virtual host: what is in it, without users and permissions.</p>
      <p><${Which} label="Of" whole="the whole broker" names=${names} vhost=${vhost} onChange=${setVhost} /></p>
      <${Button} kind="main" label="Export" onClick=${save} why=${lacksTag()} />
    <//>
    <${Panel} title="Import">
      <p><${Which} label="Into" whole="the virtual hosts that it names" names=${names} vhost=${into} onChange=${setInto} /></p>
      <label class="file">A file of definitions, of this broker or of RabbitMQ <input type="file" accept=".json,application/json" onChange=${(event) => setFile(event.currentTarget.files[0])} disabled=${Boolean(lacksTag())} /></label>
      ${lacksTag() && html` <${Why} text=${lacksTag()} />`}
      <div aria-live="polite">${draft && html`
        <h3>${draft.name}</h3>
        ${draft.found.sections.length ? html`<${Difference} found=${draft.found} />
          <button class="main" onClick=${send}>Import …</button>` : html`<p class="empty">It holds nothing that could be imported.</p>`}`}
      </div>
    <//>`;
}
