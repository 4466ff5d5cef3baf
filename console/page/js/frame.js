// What is around every page: where one can go, who one is, how often it is looked.
import { html, useEffect, useRef, useState } from "./lib.js";
import { ask, exchangeSegment, usePoll } from "./api.js";
import { brings, isAdministrator, isMonitor, set, useShared } from "./state.js";
import { to, useRoute } from "./route.js";

const GROUPS = [
  ["", [["", "Overview"], ["connections", "Connections"], ["channels", "Channels"], ["exchanges", "Exchanges"], ["queues", "Queues"], ["find", "Find a message"], ["events", "Events", isMonitor]]],
  ["In trouble", [["blocked", "Blocked", isMonitor], ["scheduled", "Scheduled", isMonitor], ["leases", "Leases", () => isMonitor() && brings("leases")], ["unacknowledged", "Unacknowledged", isMonitor], ["dead-letters", "Dead letters", isMonitor], ["jobs", "Jobs"]]],
  ["Administration", [["policies", "Policies"], ["changes", "Changes", isAdministrator], ["users", "Users", isAdministrator], ["vhosts", "Virtual hosts"], ["definitions", "Definitions", isAdministrator], ["node", "Node", isMonitor], ["nodes", "Nodes", isMonitor]]],
];
const EVERY = [[1, "1 s"], [5, "5 s"], [30, "30 s"], [0, "off"]];
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
        ...found.queues.map((one) => ["queue", one.name, one.vhost, to(["queues", one.vhost, one.name])]),
        ...found.exchanges.map((one) => ["exchange", one.name, one.vhost, to(["exchanges", one.vhost, exchangeSegment(one.name)])]),
        ...found.connections.map((name) => [`connection${found.connection_names[name] ? ` ${name}` : ""}`, found.connection_names[name] || name, "", to(["connections", name])]),
        ...found.users.map((name) => ["user", name, "", to(["users", name])]),
        ...found.vhosts.map((name) => ["virtual host", name, "", to(["vhosts", name])]),
      ].slice(0, 30)
    : [];
  const keys = (event) => {
    if (event.key === "Escape") close();
    if (event.key === "Enter" && links.length) {
      location.assign(links[0][3]);
      close();
      box.current.blur();
    }
  };
  return html`<div class="search" role="search">
    <input type="search" ref=${box} value=${text} placeholder="Find a name  ( / )" aria-label="Find a queue, exchange, connection or user by name"
      onInput=${(event) => setText(event.currentTarget.value)} onKeyDown=${keys} />
    ${found && html`<div class="found" aria-live="polite">
      ${links.length
        ? html`<ul>${links.map(([kind, name, vhost, href]) => html`<li key=${href}><a href=${href} onClick=${close}>
            <span class="name">${name || "(default)"}</span> <small>${kind}${vhost ? ` in ${vhost}` : ""}</small></a></li>`)}</ul>`
        : html`<p class="empty">Nothing has such a name.</p>`}
    </div>`}
  </div>`;
}

export function Frame({ children }) {
  const { user, vhost, every, theme, gone } = useShared();
  const { segments } = useRoute();
  const overview = usePoll("overview?disable_stats=true", { isOnce: true });
  const vhosts = usePoll("vhosts?columns=name", { isOnce: true });
  const [isOpen, setOpen] = useState(false);
  const about = overview.data || {};
  const place = segments[0] || "";
  useEffect(() => {
    setOpen(false);
    vhosts.reload(); // one may be new
    const title = GROUPS.flatMap(([, links]) => links).find(([key]) => key === place);
    document.title = `${segments.length > 1 ? `${segments[segments.length - 1]} – ` : ""}${title ? title[1] : "Page"} – Leveret`;
  }, [segments.join("\n")]);
  const leave = async () => {
    await ask("POST", "leveret/logout").catch(() => {});
    set({ user: null, notes: [] });
  };
  const names = Array.isArray(vhosts.data) ? vhosts.data.map((one) => one.name) : [];
  if (vhost && !names.includes(vhost)) names.push(vhost);
  return html`
    <a class="skip" href="#content" onClick=${(event) => { event.preventDefault(); document.getElementById("content").focus(); }}>To the content</a>
    <header class="top">
      <button type="button" class="burger" aria-expanded=${isOpen ? "true" : "false"} aria-controls="places" onClick=${() => setOpen(!isOpen)}>Menu</button>
      <a class="brand" href="#/"><img src="icon.svg" alt="" width="24" height="24" /> <b>Leveret</b>
        <small>${about.product_version || ""} ${about.cluster_name || ""}</small></a>
      <${Search} />
      <span class=${`pulse ${gone ? "fault" : ""}`}>${gone ? "no answer" : "connected"}</span>
    </header>
    <div class="body">
      <nav id="places" class=${isOpen ? "open" : ""} aria-label="Pages">
        ${GROUPS.map(([title, links]) => {
          const may = links.filter(([, , isAllowed]) => !isAllowed || isAllowed());
          return may.length > 0 && html`<div key=${title}>
            ${title && html`<h2>${title}</h2>`}
            <ul>${may.map(([key, label]) => html`<li key=${key}>
              <a href=${to(key ? [key] : [])} aria-current=${place === key ? "page" : undefined}>${label}</a></li>`)}</ul>
          </div>`;
        })}
        <div class="choices">
          <label>Virtual host
            <select value=${vhost} onChange=${(event) => set({ vhost: event.currentTarget.value })}>
              <option value="" selected=${vhost === ""}>all</option>
              ${names.map((name) => html`<option key=${name} value=${name} selected=${name === vhost}>${name}</option>`)}
            </select></label>
          <label>Refresh
            <select value=${String(every)} onChange=${(event) => set({ every: Number(event.currentTarget.value) })}>
              ${EVERY.map(([seconds, text]) => html`<option key=${seconds} value=${seconds} selected=${seconds === every}>${text}</option>`)}
            </select></label>
          <label>Colours
            <select value=${theme} onChange=${(event) => set({ theme: event.currentTarget.value })}>
              ${THEMES.map(([key, text]) => html`<option key=${key} value=${key} selected=${key === theme}>${text}</option>`)}
            </select></label>
          <p class="who">${user.name} <small>${user.tags.join(", ")}</small></p>
          <button type="button" onClick=${leave}>Log out</button>
        </div>
      </nav>
      <main id="content" tabindex="-1">${children}</main>
    </div>
  `;
}
