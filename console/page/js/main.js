// The page: a login, then a frame around the page that the address names. One file a page, fetched when it is opened.
import { html, render, useEffect, useState } from "./lib.js";
import { ask } from "./api.js";
import { Frame } from "./frame.js";
import { Login } from "./login.js";
import { GoneBand, Notes, Question } from "./parts.js";
import { useRoute } from "./route.js";
import { set, useShared } from "./state.js";

/** By the first word of the address: the file, and its component with and without a name behind it. */
const PAGES = {
  "": ["overview", "Overview"],
  connections: ["connections", "Connections", "Connection"],
  channels: ["connections", "Channels", "Channel"],
  exchanges: ["exchanges", "Exchanges", "Exchange"],
  queues: ["queues", "Queues", "Queue"],
  blocked: ["trouble", "Blocked"],
  scheduled: ["trouble", "Scheduled"],
  leases: ["leases", "Leases"],
  unacknowledged: ["unacked", "Unacknowledged"],
  "dead-letters": ["jobs", "DeadLetters"],
  jobs: ["jobs", "Jobs"],
  find: ["find", "Find"],
  events: ["find", "Events"],
  policies: ["policies", "Policies"],
  parameters: ["parameters", "Parameters"],
  changes: ["changes", "Changes"],
  users: ["users", "Users", "User"],
  vhosts: ["vhosts", "VirtualHosts", "VirtualHost"],
  definitions: ["definitions", "Definitions"],
  node: ["node", "Node"],
  log: ["log", "Log"],
  nodes: ["nodes", "Nodes"],
  commands: ["commands", "Commands"],
};

function Page() {
  const { segments, query } = useRoute();
  const [found, setFound] = useState(null);
  const [file, ...components] = PAGES[segments[0] || ""] || [];
  const component = components[segments.length > 1 && components[1] ? 1 : 0];
  const place = segments.join("\n");
  useEffect(() => {
    let isOver = false;
    scrollTo(0, 0);
    if (file) {
      import(`./pages/${file}.js`).then(
        (module) => isOver || setFound({ place, Component: module[component] }),
        () => isOver || setFound({ place, Component: () => html`<p class="empty" role="alert">This page could not be fetched: the broker does not answer.</p>` }),
      );
    }
    return () => {
      isOver = true;
    };
  }, [place]);
  if (!file) return html`<h1>No such page</h1><p>Nothing is at this address. <a href="#/">Overview</a></p>`;
  if (!found || found.place !== place) return html`<p class="empty" role="status">Loading …</p>`;
  const { Component } = found;
  return html`<${Component} key=${place} names=${segments.slice(1)} query=${query} kind=${segments[0]} />`;
}

function App() {
  const { user } = useShared();
  const [isAsked, setAsked] = useState(false);
  useEffect(() => {
    ask("GET", "leveret/session")
      .then((found) => set({ user: found?.name !== undefined ? found : null }))
      .catch(() => {})
      .finally(() => setAsked(true));
  }, []);
  if (!isAsked) return html`<p class="empty" role="status">Loading …</p>`;
  return html`
    ${user ? html`<${Frame} key=${user.name}><${GoneBand} /><${Page} /><//>` : html`<${Login} />`}
    <${Notes} /><${Question} />
  `;
}

render(html`<${App} />`, document.getElementById("app"));
