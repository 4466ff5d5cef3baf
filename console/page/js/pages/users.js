// Users, what they may, and how much they may open.
import { html, useState } from "../lib.js";
import { act, path, usePoll } from "../api.js";
import { column, table, WIDE } from "../columns.js";
import { Form } from "../form.js";
import { UserLink, VhostLink } from "../links.js";
import { List, Rows } from "../list.js";
import { Badge, confirm, Danger, Facts, Fold, Panel, Table, Waiting } from "../parts.js";
import { go, to } from "../route.js";
import { remove } from "../second_step.js";
import { me } from "../state.js";

const TAGS = 'administrator, monitoring, policymaker, management; without any: AMQP only';
const tagsOf = (text) => text.split(",").map((one) => one.trim()).filter(Boolean);

export function Users({ query }) {
  const permissions = usePoll("permissions", { isOnce: true });
  const [turn, setTurn] = useState(0);
  const known = new Map();
  for (const one of permissions.rows) {
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
    column("Limits", "limits", table, WIDE),
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
  const { isHere } = view;
  const end = async () => {
    if (await remove("users", "user", [name], { text: `${name}, with all permissions.`, typed: name === me() ? name : "" })) go(["users"]);
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
      <${Grants} what="permissions" user=${name} view=${permissions} fields=${patterns("configure", "write", "read")} empty="No permissions: nothing works for this user."
        cleared=${(one) => `${name} may do nothing in ${one.vhost} any more.`} />
      <${Grants} what="topic permissions" user=${name} view=${topics} isTopic fields=${patterns("write", "read")} empty="None: every routing key is allowed."
        cleared=${(one) => `Of ${one.exchange} in ${one.vhost}: every routing key is allowed again.`} />
      <${Fold} title="Password and tags"><${Change} user=${user} reload=${view.reload} /><//>
      <p><a href=${to(["changes"], { kind: "user", name })}>Earlier versions</a></p>
      <${Panel} title="Delete"><${Danger} label="Delete the user …" onClick=${end} /><//>
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

const capital = (word) => word[0].toUpperCase() + word.slice(1);
const IN_VHOST = { title: "Virtual host", cell: (one) => html`<${VhostLink} name=${one.vhost} />` };
const OF_EXCHANGE = { title: "Exchange", cell: (one) => html`<span class="name">${one.exchange}</span>` };
const patterns = (...names) => names.map((name) => ({ name, label: capital(name), value: ".*", hint: "a regular expression; empty: nothing" }));
const VHOST = { name: "vhost", label: "Virtual host", value: "/", required: true };
const EXCHANGE = { name: "exchange", label: "Exchange", required: true };

/** What a user may do, in rows that are set and cleared. `what`: their name; `cleared(row)`: what clearing one does. */
function Grants({ what, user, view, isTopic, fields, cleared, empty }) {
  const rows = view.rows;
  const title = capital(what);
  const place = (one, ...exchange) => path(what.replace(" ", "-"), one.vhost, user, ...exchange);
  const end = async (one) => {
    if (!(await confirm({ title: `Clear these ${what}`, text: cleared(one), verb: "Clear" }))) return;
    if (await act(`The ${what} are cleared.`, "DELETE", isTopic ? place(one, one.exchange) : place(one))) view.reload();
  };
  const save = async ({ vhost, ...body }) => {
    const done = await act(`The ${what} hold from now on.`, "PUT", place({ vhost }), { body });
    if (done) view.reload();
    return Boolean(done);
  };
  const columns = [
    ...(isTopic ? [OF_EXCHANGE, IN_VHOST] : [IN_VHOST]),
    ...fields.map(({ name, label }) => ({ title: label, cell: (one) => html`<code>${one[name]}</code>` })),
    { title: "", cell: (one) => html`<${Danger} label="Clear …" onClick=${() => end(one)} />` },
  ];
  const key = isTopic ? [VHOST, EXCHANGE] : [VHOST];
  return html`<${Panel} title=${title}>
    <${Rows} rows=${rows} columns=${columns} caption=${title} keyOf=${(one) => place(one, one.exchange)} empty=${empty} />
    <${Fold} title=${`Set ${what}`}><${Form} name=${`Set ${what}`} fields=${[...key, ...fields]} verb="Set" onSubmit=${save} /><//>
  <//>`;
}
