// Users, what they may, and how much they may open.
import { html, useState } from "../lib.js";
import { act, path, usePoll } from "../api.js";
import { Form } from "../form.js";
import { UserLink, VhostLink } from "../links.js";
import { List, Rows } from "../list.js";
import { Badge, confirm, Danger, Facts, Fold, Panel, Table, Waiting } from "../parts.js";
import { go, to } from "../route.js";
import { secondStep } from "../second_step.js";
import { me } from "../state.js";

const TAGS = 'administrator, monitoring, policymaker, management; without any: AMQP only';
const tagsOf = (text) => text.split(",").map((one) => one.trim()).filter(Boolean);

export function Users({ query }) {
  const permissions = usePoll("permissions", { isOnce: true });
  const [turn, setTurn] = useState(0);
  const known = new Map();
  for (const one of Array.isArray(permissions.data) ? permissions.data : []) {
    known.set(one.user, [...(known.get(one.user) || []), one.vhost]);
  }
  const columns = [
    { title: "Name", sort: "name", cell: (user) => html`<${UserLink} name=${user.name} />` },
    { title: "Tags", sort: "tags", cell: (user) => [].concat(user.tags).map((tag) => html`<${Badge} key=${tag} text=${tag} />`) },
    {
      title: "Virtual hosts",
      cell: (user) => {
        if (!permissions.data) return "–";
        const vhosts = known.get(user.name);
        return vhosts ? html`<span class="name">${vhosts.join(", ")}</span>` : html`<b class="fault">no permissions</b>`;
      },
    },
    { title: "Password", isWide: true, cell: (user) => (user.password_hash ? "set" : "none: cannot log in by one") },
    { title: "Limits", isWide: true, cell: (user) => html`<${Table} value=${user.limits} empty="" />` },
  ];
  const fields = [
    { name: "name", label: "Name", required: true, autocomplete: "username" },
    { name: "password", label: "Password", type: "password", autocomplete: "new-password", required: true },
    { name: "tags", label: "Tags", hint: TAGS },
  ];
  const add = async ({ name, password, tags }) => {
    const done = await act(`User ${name} is there; permissions are given on his page.`, "PUT", path("users", name), { body: { password, tags: tagsOf(tags) } });
    if (done) setTurn((count) => count + 1);
    return Boolean(done);
  };
  return html`
    <h1>Users</h1>
    <${List} key=${turn} base="users" query=${query} columns=${columns} caption="Users" what="user" isPaged=${false} empty="No users." keyOf=${(user) => user.name} />
    <${Fold} title="Add a user"><${Form} name="Add a user" fields=${fields} verb="Add" onSubmit=${add} /><//>`;
}

export function User({ names: [name] }) {
  const place = path("users", name);
  const view = usePoll(place);
  const permissions = usePoll(`${place}/permissions`);
  const topics = usePoll(`${place}/topic-permissions`);
  const user = view.data;
  const isHere = user && !(view.error && !view.error.isGone);
  const remove = async () => {
    const text = `${name}, with all permissions.`;
    if (!(await secondStep({ target: path("leveret", "preview", "users", name), title: "Delete this user", text, verb: "Delete", typed: name === me() ? name : "" }))) return;
    if (await act(`${name} is deleted.`, "DELETE", place)) go(["users"]);
  };
  return html`
    <p class="crumbs"><a href=${to(["users"])}>Users</a></p>
    <h1><span class="name">${name}</span></h1>
    <${Waiting} view=${view} what=${`User ${name}`} />
    ${isHere && html`
      <${Panel} title="Details"><${Facts} rows=${[
        ["Tags", [].concat(user.tags).join(", ") || "none"],
        ["Password", user.password_hash ? "set" : "none"],
        ["Limits", html`<${Table} value=${user.limits} />`],
      ]} /><//>
      <${Permissions} name=${name} view=${permissions} />
      <${Topics} name=${name} view=${topics} />
      <${Fold} title="Password and tags"><${Change} user=${user} reload=${view.reload} /><//>
      <p><a href=${to(["changes"], { kind: "user", name })}>Earlier versions</a></p>
      <${Panel} title="Delete"><${Danger} label="Delete the user …" onClick=${remove} /><//>
    `}`;
}

function Change({ user, reload }) {
  const fields = [
    { name: "password", label: "New password", type: "password", autocomplete: "new-password", hint: "empty: it stays as it is" },
    { name: "tags", label: "Tags", value: [].concat(user.tags).join(", "), hint: TAGS },
  ];
  const save = async ({ password, tags }) => {
    const secret = password ? { password } : { password_hash: user.password_hash, hashing_algorithm: user.hashing_algorithm };
    const done = await act("Saved.", "PUT", path("users", user.name), { body: { ...secret, tags: tagsOf(tags) } });
    if (done) reload();
    return false;
  };
  return html`<${Form} name="Password and tags" username=${user.name} fields=${fields} verb="Save" onSubmit=${save} />`;
}

function Permissions({ name, view }) {
  const rows = Array.isArray(view.data) ? view.data : [];
  const end = async (one) => {
    const text = `${name} may do nothing in ${one.vhost} any more.`;
    if (!(await confirm({ title: "Clear these permissions", text, verb: "Clear" }))) return;
    if (await act("The permissions are cleared.", "DELETE", path("permissions", one.vhost, name))) view.reload();
  };
  const columns = [
    { title: "Virtual host", cell: (one) => html`<${VhostLink} name=${one.vhost} />` },
    { title: "Configure", cell: (one) => html`<code>${one.configure}</code>` },
    { title: "Write", cell: (one) => html`<code>${one.write}</code>` },
    { title: "Read", cell: (one) => html`<code>${one.read}</code>` },
    { title: "", cell: (one) => html`<${Danger} label="Clear …" onClick=${() => end(one)} />` },
  ];
  const fields = [
    { name: "vhost", label: "Virtual host", value: "/", required: true },
    ...["configure", "write", "read"].map((one) => ({ name: one, label: one[0].toUpperCase() + one.slice(1), value: ".*", hint: "a regular expression; empty: nothing" })),
  ];
  const save = async ({ vhost, ...body }) => {
    const done = await act("The permissions hold from now on.", "PUT", path("permissions", vhost, name), { body });
    if (done) view.reload();
    return Boolean(done);
  };
  return html`<${Panel} title="Permissions">
    ${rows.length ? html`<${Rows} rows=${rows} columns=${columns} caption="Permissions" keyOf=${(one) => one.vhost} />` : html`<p class="empty">No permissions: nothing works for this user.</p>`}
    <${Fold} title="Set permissions"><${Form} name="Set permissions" fields=${fields} verb="Set" onSubmit=${save} /><//>
  <//>`;
}

function Topics({ name, view }) {
  const rows = Array.isArray(view.data) ? view.data : [];
  const end = async (one) => {
    const text = `Of ${one.exchange} in ${one.vhost}: every routing key is allowed again.`;
    if (!(await confirm({ title: "Clear these topic permissions", text, verb: "Clear" }))) return;
    if (await act("The topic permissions are cleared.", "DELETE", path("topic-permissions", one.vhost, name, one.exchange))) view.reload();
  };
  const columns = [
    { title: "Exchange", cell: (one) => html`<span class="name">${one.exchange}</span>` },
    { title: "Virtual host", cell: (one) => html`<span class="name">${one.vhost}</span>` },
    { title: "Write", cell: (one) => html`<code>${one.write}</code>` },
    { title: "Read", cell: (one) => html`<code>${one.read}</code>` },
    { title: "", cell: (one) => html`<${Danger} label="Clear …" onClick=${() => end(one)} />` },
  ];
  const fields = [
    { name: "vhost", label: "Virtual host", value: "/", required: true },
    { name: "exchange", label: "Exchange", required: true },
    { name: "write", label: "Write", value: ".*" },
    { name: "read", label: "Read", value: ".*" },
  ];
  const save = async ({ vhost, ...body }) => {
    const done = await act("The topic permissions hold from now on.", "PUT", path("topic-permissions", vhost, name), { body });
    if (done) view.reload();
    return Boolean(done);
  };
  return html`<${Panel} title="Topic permissions">
    ${rows.length ? html`<${Rows} rows=${rows} columns=${columns} caption="Topic permissions" keyOf=${(one) => `${one.vhost}\n${one.exchange}`} />` : html`<p class="empty">None: every routing key is allowed.</p>`}
    <${Fold} title="Set topic permissions"><${Form} name="Set topic permissions" fields=${fields} verb="Set" onSubmit=${save} /><//>
  <//>`;
}
