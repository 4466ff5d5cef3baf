// All commands with a route of the API, each with its form: what a package adds is here by itself.
import { confirm, Fold, html, lacksTag, usePoll, useState, Waiting } from "../common.js";
import { CommandForm } from "../form.js";

/** What deletes, moves or limits is done on pages that show first, in numbers, what it does. */
const HAVE_PAGES = ["move", "replay", "discard", "reload", "vhosts limits", "versions restore", "handover", "drain", "users replace"];
const LACKS = { monitoring: ["monitoring"], policymaker: ["policymaker"], administrator: [] };

export function Commands() {
  const view = usePoll("leveret/commands", { isOnce: true });
  return html`<h1>Commands</h1>
    <p class="dim">Commands with their own path in the HTTP API; leveret ctl has these and more. <a href="api/index.html">All paths</a></p>
    <${Waiting} view=${view} what="commands" />
    ${view.rows.filter((one) => one.path).map((one) => html`<${Fold} key=${one.name} title=${one.name}><${Command} command=${one} /><//>`)}`;
}

function Command({ command: { name, help, method, path, level, changes } }) {
  const [result, setResult] = useState();
  const why = LACKS[level] ? lacksTag(...LACKS[level]) : "";
  const sure = () => !changes || confirm({ title: name, text: `${help}.`, verb: "Run" });
  return html`<p>${help}.</p><p><code>${method} /api/${path}</code></p>
    ${method === "DELETE" || HAVE_PAGES.includes(name) ? html`<p class="dim">Use the page of what it changes, which shows the effect first.</p>`
      : html`<${CommandForm} of=${name} name=${name} verb="Run" sure=${sure} done=${() => (changes ? `${name}: done.` : "")} after=${(value) => setResult(value ?? "Done.")} why=${why} />
        <div aria-live="polite">${result !== undefined && html`<pre tabindex="0" aria-label="Result">${JSON.stringify(result, null, 2)}</pre>`}</div>`}`;
}
