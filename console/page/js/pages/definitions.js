// Everything that is declared and set, out and in. An import is looked through before it is sent.
import { html, useState } from "../lib.js";
import { act, ask } from "../api.js";
import { several } from "../format.js";
import { Rows } from "../list.js";
import { confirm, Panel } from "../parts.js";
import { note } from "../state.js";

/** What makes an entry of a section the same as another. */
const KEYS = {
  users: ["name"],
  vhosts: ["name"],
  permissions: ["user", "vhost"],
  topic_permissions: ["user", "vhost", "exchange"],
  exchanges: ["vhost", "name"],
  queues: ["vhost", "name"],
  bindings: ["vhost", "source", "destination_type", "destination", "routing_key"],
  policies: ["vhost", "name"],
  parameters: ["component", "vhost", "name"],
  global_parameters: ["name"],
};
const keyOf = (section, one) => KEYS[section].map((key) => JSON.stringify(one[key])).join("\n");

/** By section: how many are new, and how many are here already. */
function compared(given, here) {
  return Object.keys(KEYS)
    .filter((section) => Array.isArray(given[section]) && given[section].length)
    .map((section) => {
      const known = new Set((here[section] || []).map((one) => keyOf(section, one)));
      const there = given[section].filter((one) => known.has(keyOf(section, one))).length;
      return { section, fresh: given[section].length - there, there };
    });
}

export function Definitions() {
  const [draft, setDraft] = useState(null);
  const save = async () => {
    const done = await act("", "GET", "definitions");
    if (!done) return;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([JSON.stringify(done.value, null, 1)], { type: "application/json" }));
    link.download = `leveret-definitions-${new Date().toISOString().slice(0, 10)}.json`;
    link.click();
    URL.revokeObjectURL(link.href);
    note("The definitions are in your downloads. They hold hashes of passwords: keep them safe.");
  };
  const choose = async (event) => {
    const [file] = event.currentTarget.files;
    setDraft(null);
    if (!file) return;
    try {
      const given = JSON.parse(await file.text());
      if (given === null || typeof given !== "object" || Array.isArray(given)) throw new SyntaxError();
      const here = await ask("GET", "definitions");
      setDraft({ name: file.name, given, rows: compared(given, here) });
    } catch (error) {
      note(error instanceof SyntaxError ? `${file.name} holds no definitions: it is not a JSON object.` : error.message, true);
    }
  };
  const send = async () => {
    const total = draft.rows.reduce((sum, row) => sum + row.fresh + row.there, 0);
    const text = `${several(total, "entry", "entries")} of ${draft.name}. Nothing is deleted; users, policies and parameters that are here are replaced. Either all of it is taken or nothing.`;
    if (!(await confirm({ title: "Import these definitions", text, verb: "Import" }))) return;
    if (await act("The definitions are imported.", "POST", "definitions?all-or-nothing=true", { body: draft.given })) setDraft(null);
  };
  const columns = [
    { title: "Section", cell: (row) => row.section.replace("_", " ") },
    { title: "New", isNumber: true, cell: (row) => row.fresh },
    { title: "Here already", isNumber: true, cell: (row) => row.there },
  ];
  return html`
    <h1>Definitions</h1>
    <${Panel} title="Export">
      <p>Virtual hosts, users, permissions, exchanges, queues, bindings, policies and parameters as RabbitMQ's JSON; no messages.</p>
      <button type="button" class="main" onClick=${save}>Export</button>
    <//>
    <${Panel} title="Import">
      <label class="file">A file of definitions, of this broker or of RabbitMQ <input type="file" accept=".json,application/json" onChange=${choose} /></label>
      <div aria-live="polite">${draft && html`
        <h3>${draft.name}</h3>
        ${draft.rows.length ? html`<${Rows} rows=${draft.rows} columns=${columns} caption="What the file holds" keyOf=${(row) => row.section} />
          <button type="button" class="main" onClick=${send}>Import …</button>` : html`<p class="empty">It holds nothing that could be imported.</p>`}`}
      </div>
    <//>`;
}
