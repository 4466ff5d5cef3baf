// Users, what they may, and how much they may open.
import { act, Badge, Button, code, column, confirm, Danger, Facts, Fold, go, Head, html, List, me, named, note, Panel, path, remove, Rows, table, to, usePoll, UserLink, useState, VhostLink, WIDE } from "../common.js";
import { CommandForm, titled } from "../form.js";
import { Limits } from "../limits.js";

const tagsOf = (text) => text.split(",").map((one) => one.trim()).filter(Boolean);

const PASSWORD = { autocomplete: "new-password" };
const OF_NEW = { name: { autocomplete: "username" }, password: { ...PASSWORD, required: true, hint: "" } };
const PATTERNS = ["configure", "write", "read"];

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
        return vhosts ? named(vhosts.join(", ")) : html`<b class="fault">no permissions</b>`;
      },
    },
    { title: "Password", isWide: true, cell: (user) => (user.password_hash ? "set" : "none: cannot log in by one") },
    column("Limits", "limits", table, WIDE),
  ];
  const add = async ({ vhost, ...given }) => {
    const { name, password, tags } = given;
    const found = vhost ? null : await act("", "GET", "users?columns=name");
    if (found?.value.some((one) => one.name === name)) return note(`User ${name} is there already.`, true);
    const done = vhost
      ? await act(`User ${name} is there, with permissions in ${vhost}.`, "POST", path("leveret", "vhosts", vhost, "users"), { body: given })
      : await act(`User ${name} is there, without permissions.`, "PUT", path("users", name), { body: { password, tags } });
    if (done) setTurn((count) => count + 1);
    return Boolean(done);
  };
  return html`
    <h1>Users</h1>
    <${List} key=${turn} base="users" query=${query} columns=${columns} caption="Users" what="user" isPaged=${false} empty="No users." />
    <${Fold} title="Add a user"><${CommandForm} of="users add" only="name password tags vhost configure write read" own=${OF_NEW} name="Add a user" verb="Add" onSubmit=${add} /><//>`;
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
    <${Head} list=${["users", "Users"]} what="User" name=${name} view=${view} />
    ${isHere && html`
      <${Panel} title="Details"><${Facts} rows=${[
        ["Tags", [].concat(user.tags).join(", ") || "none"],
        ["Password", user.password_hash ? "set" : "none"],
      ]} /><//>
      <${Grants} what="permissions" user=${name} view=${permissions} patterns=${PATTERNS} empty="No permissions: nothing works for this user."
        cleared=${(one) => `${name} may do nothing in ${one.vhost} any more.`} />
      <${Grants} what="topic permissions" user=${name} view=${topics} isTopic patterns=${PATTERNS.slice(1)} empty="None: every routing key is allowed."
        cleared=${(one) => `Of ${one.exchange} in ${one.vhost}: every routing key is allowed again.`} />
      <${Limits} of="users limits" name=${name} limits=${user.limits} reload=${view.reload} />
      <${Fold} title="Password and tags"><${Change} user=${user} reload=${view.reload} /><//>
      <p><a href=${to(["changes"], { kind: "user", name })}>Earlier versions</a></p>
      <${Panel} title="Delete"><${Danger} label="Delete the user …" onClick=${end} /><//>
    `}`;
}

function Change({ user, reload }) {
  const own = { password: { ...PASSWORD, label: "New password", hint: "empty: it stays as it is" }, tags: { required: false } };
  const save = async ({ password, tags }) => {
    const text = `Whoever is at this page as ${user.name} has to log in again; open connections stay.`;
    if (password && !(await confirm({ title: "Set a new password", text, verb: "Set" }))) return false;
    const secret = password ? { password } : { password_hash: user.password_hash, hashing_algorithm: user.hashing_algorithm };
    const done = await act("Saved.", "PUT", path("users", user.name), { body: { ...secret, tags: tagsOf(tags) } });
    if (done) reload();
    return Boolean(done);
  };
  const tags = [].concat(user.tags).join(", ");
  return html`<${CommandForm} key=${tags} of="users replace" only="password tags" values=${{ tags }} own=${own} name="Password and tags" username=${user.name} verb="Save" onSubmit=${save} />`;
}

const IN_VHOST = { title: "Virtual host", cell: (one) => html`<${VhostLink} name=${one.vhost} />` };
const OF_EXCHANGE = column("Exchange", "exchange");
const ALL = Object.fromEntries(PATTERNS.map((name) => [name, ".*"]));
const EMPTY_TOO = Object.fromEntries(PATTERNS.map((name) => [name, { required: false }]));

/** What a user may do, in rows that are set and cleared. `what`: their name; `cleared(row)`: what clearing one does. */
function Grants({ what, user, view, isTopic, patterns, cleared, empty }) {
  const rows = view.rows;
  const [edited, setEdited] = useState(null);
  const title = titled(what);
  const place = (one, ...exchange) => path(what.replace(" ", "-"), one.vhost, user, ...exchange);
  const end = async (one) => {
    if (!(await confirm({ title: `Clear these ${what}`, text: cleared(one), verb: "Clear" }))) return;
    if (await act(`The ${what} are cleared.`, "DELETE", isTopic ? place(one, one.exchange) : place(one))) view.reload();
  };
  const save = async ({ vhost, ...body }) => {
    const done = await act(`The ${what} hold from now on.`, "PUT", place({ vhost }), { body });
    if (done) {
      setEdited(null);
      view.reload();
    }
    return Boolean(done);
  };
  const columns = [
    ...(isTopic ? [OF_EXCHANGE, IN_VHOST] : [IN_VHOST]),
    ...patterns.map((name) => column(titled(name), name, code)),
    { title: "", cell: (one) => html`<span class="buttons"><${Button} label="Edit" onClick=${() => setEdited(one)} /><${Danger} label="Clear …" onClick=${() => end(one)} /></span>` },
  ];
  const names = [isTopic ? "vhost exchange" : "vhost", ...patterns].join(" ");
  return html`<${Panel} title=${title}>
    <${Rows} rows=${rows} columns=${columns} caption=${title} keyOf=${(one) => place(one, one.exchange)} empty=${empty} />
    <${Fold} key=${edited ? place(edited, edited.exchange) : ""} title=${`Set ${what}`} isOpen=${Boolean(edited)}><${CommandForm} of=${`${what.replace(" ", "-")} set`} only=${names} values=${edited || ALL} own=${EMPTY_TOO} name=${`Set ${what}`} verb="Set" onSubmit=${save} /><//>
  <//>`;
}
