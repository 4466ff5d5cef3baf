// What is around every page: where one can go, who one is, how often it is looked.
import { html, useEffect, useRef, useState, visible } from "./lib.js";
import { ask, exchangeSegment, usePoll } from "./api.js";
import { lacksTag } from "./may.js";
import { Chip, Choice } from "./parts.js";
import { brings, enter, set, state, useShared } from "./state.js";
import { to, useRoute } from "./route.js";

const forMonitors = () => lacksTag("monitoring");
const forAdministrators = () => lacksTag();

const GROUPS = [
  ["", [["", "Overview"], ["connections", "Connections"], ["channels", "Channels"], ["exchanges", "Exchanges"], ["queues", "Queues"], ["find", "Find a message"], ["events", "Events", forMonitors]]],
  ["In trouble", [["blocked", "Blocked", forMonitors], ["scheduled", "Scheduled", forMonitors], ["leases", "Leases", forMonitors], ["unacknowledged", "Unacknowledged", forMonitors], ["dead-letters", "Dead letters", forMonitors], ["jobs", "Jobs"]]],
  ["Administration", [["policies", "Policies"], ["parameters", "Parameters", () => lacksTag("policymaker")], ["changes", "Changes", forAdministrators], ["users", "Users", forAdministrators], ["vhosts", "Virtual hosts"], ["definitions", "Definitions", forAdministrators], ["node", "Node", forMonitors], ["log", "Log", forMonitors], ["nodes", "Nodes", forMonitors], ["commands", "Commands"]]],
];
/** Pages that show only what is in the virtual host that the menu chose. */
const NARROWED = ["connections", "channels", "exchanges", "queues", "scheduled", "leases", "unacknowledged", "dead-letters", "policies"];
/** Pages of packages that a broker may not have. */
const OPTIONAL = ["leases"];
const EVERY = [["1", "1 s"], ["5", "5 s"], ["30", "30 s"], ["0", "off"]];
/** Between two questions for the session. */
const SESSION_MS = 600000;
const THEMES = [["auto", "System"], ["light", "Light"], ["dark", "Dark"]];

function Search() {
  const [text, setText] = useState("");
  const [found, setFound] = useState(null);
  const box = useRef(null);
  useEffect(() => {
    const listener = (event) => {
      const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
      if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        box.current.focus();
      }
    };
    addEventListener("keydown", listener);
    return () => removeEventListener("keydown", listener);
  }, []);
  useEffect(() => {
    if (!text) return setFound(null);
    const stop = new AbortController();
    const timer = setTimeout(() => {
      ask("GET", `leveret/search?q=${encodeURIComponent(text)}`, { signal: stop.signal }).then(setFound, () => setFound(null));
    }, 200);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [text]);
  const close = () => setText("");
  const links = found
    ? [
        ...["queue", "exchange"].flatMap((kind) => found[`${kind}s`].map(({ name, vhost }) => [kind, name, vhost, to([`${kind}s`, vhost, exchangeSegment(name)])])),
        ...found.connections.map((name) => [`connection${found.connection_names[name] ? ` ${name}` : ""}`, found.connection_names[name] || name, "", to(["connections", name])]),
        ...[["user", "users"], ["virtual host", "vhosts"]].flatMap(([kind, place]) => found[place].map((name) => [kind, name, "", to([place, name])])),
      ].slice(0, 30)
    : [];
  if (found) links.push(["look for a message with this id", text, "", to(["find"], { message_id: text })]);
  const keys = (event) => {
    if (event.key === "Escape") close();
    if (event.key === "Enter" && found) {
      location.assign(links[0][3]);
      close();
      box.current.blur();
    }
  };
  return html`<div class="search" role="search">
    <input type="search" ref=${box} value=${text} placeholder="Find a name or message id  ( / )" aria-label="Find a queue, exchange, connection or user by name, or a message by its id"
      onInput=${(event) => setText(event.currentTarget.value)} onKeyDown=${keys} />
    ${found && html`<div class="found" aria-live="polite">
      <ul>${links.map(([kind, name, vhost, href]) => html`<li key=${href}><a href=${href} onClick=${close}>
            <span class="name">${name || "(default)"}</span> <small>${kind}${vhost ? ` in ${vhost}` : ""}</small></a></li>`)}</ul>
    </div>`}
  </div>`;
}

/** A link to a page; if it shows the user nothing, only its name, grey, with the reason. */
function Place({ place, label, why, isHere }) {
  if (why) return html`<li><span class="place denied" title=${why}>${label}<span class="hidden">: ${why}</span></span></li>`;
  return html`<li><a class="place" href=${to(place ? [place] : [])} aria-current=${isHere ? "page" : undefined}>${label}</a></li>`;
}

/** The user's tags and virtual hosts may be others than when the page was opened. */
async function lookWhoIsHere() {
  const before = state.user;
  const [user, may] = await Promise.all([ask("GET", "leveret/session"), ask("GET", "leveret/may")]).catch(() => [{}, {}]);
  if (user.name === undefined || state.user !== before) return;
  const found = { user, hiddenVhosts: may.hidden_vhosts };
  if (JSON.stringify(found) !== JSON.stringify({ user: state.user, hiddenVhosts: state.hiddenVhosts })) set(found);
}

export function Frame({ children }) {
  const { user, vhost, every, theme, gone } = useShared();
  const { segments } = useRoute();
  const overview = usePoll("overview?disable_stats=true", { isOnce: true });
  const vhosts = usePoll("vhosts?disable_stats=true&columns=name", { isOnce: true });
  const [isOpen, setOpen] = useState(false);
  const about = overview.data || {};
  const place = segments[0] || "";
  useEffect(() => {
    setOpen(false);
    vhosts.reload(); // one may be new
    lookWhoIsHere();
    const title = GROUPS.flatMap(([, links]) => links).find(([key]) => key === place);
    document.title = `${segments.length > 1 ? `${visible(segments[segments.length - 1])} – ` : ""}${title ? title[1] : "Page"} – Leveret`;
  }, [segments.join("\n")]);
  useEffect(() => {
    const timer = setInterval(lookWhoIsHere, SESSION_MS); // which renews it
    return () => clearInterval(timer);
  }, []);
  const leave = async () => {
    await ask("POST", "leveret/logout").catch(() => {});
    enter(null);
  };
  const names = vhosts.rows.map((one) => one.name);
  if (vhost && !names.includes(vhost)) names.push(vhost);
  return html`
    <a class="skip" href="#content" onClick=${(event) => { event.preventDefault(); document.getElementById("content").focus(); }}>To the content</a>
    <header class=${`top ${isOpen ? "open" : ""}`}>
      <button class="burger" aria-expanded=${isOpen ? "true" : "false"} aria-controls="places" onClick=${() => setOpen(!isOpen)}>Menu</button>
      <a class="brand" href="#/"><img src="icon.svg" alt="" width="24" height="24" /> <b>Leveret</b>
        <small>${about.product_version || ""} ${about.cluster_name || ""}</small></a>
      <${Search} />
      <div class="choices">
        <${Choice} label="Virtual host" value=${vhost} options=${[["", "all"], ...names]} onChange=${(value) => set({ vhost: value })} />
        <${Choice} label="Refresh" value=${String(every)} options=${EVERY} onChange=${(value) => set({ every: Number(value) })} />
        <${Choice} label="Colours" value=${theme} options=${THEMES} onChange=${(value) => set({ theme: value })} />
        <span class="who">${user.name} <small>${user.tags.join(", ")}</small></span>
        <button onClick=${leave}>Log out</button>
      </div>
      <span class=${`pulse ${gone ? "fault" : ""}`}>${gone ? "no answer" : "connected"}</span>
    </header>
    <div class="body">
      <nav id="places" class=${isOpen ? "open" : ""} aria-label="Pages">
        ${GROUPS.map(([title, links]) => html`<div key=${title}>
          ${title && html`<h2>${title}</h2>`}
          <ul>${links.filter(([key]) => !OPTIONAL.includes(key) || brings(key)).map(([key, label, whyNot]) => html`<${Place} key=${key} place=${key} label=${label} why=${whyNot ? whyNot() : ""} isHere=${place === key} />`)}</ul>
        </div>`)}
      </nav>
      <main id="content" tabindex="-1">
        ${vhost && segments.length === 1 && NARROWED.includes(place) && html`<p class="narrowed">Only in the virtual host <${Chip} name=${vhost} label="In all virtual hosts" onClose=${() => set({ vhost: "" })} /></p>`}
        ${children}
      </main>
    </div>
  `;
}
