// Messages as a table, with columns of one's choice: what the broker tells, headers, and paths of JSON bodies.
import { html } from "./lib.js";
import { asIs, at, column, EXTRA, named, number, WIDE } from "./columns.js";
import { bytes, parsed, plain } from "./format.js";
import { ConnectionLink } from "./links.js";
import { chosenColumns, ColumnChoice, keyOfColumn, Rows } from "./list.js";
import { decoded, refine } from "./route.js";

/** Of the bodies: paths that are offered, how deep they go, and letters of a body that are shown. */
const [PATHS_MAX, DEEP, LETTERS] = [100, 4, 80];

const FIXED = [
  column("Position", "position", asIs),
  column("Routing key", "routing_key"),
  column("Message id", "properties.message_id"),
  column("Size", "payload_bytes", bytes, WIDE),
  column("Body", "payload", (text) => html`<code>${text.slice(0, LETTERS)}${text.length > LETTERS ? "…" : ""}</code>`),
  column("Exchange", "exchange", named, EXTRA),
  column("Attempts", "attempts", number, EXTRA),
  { title: "Held by", isExtra: true, cell: ({ holder }) => holder && html`<${ConnectionLink} name=${holder.connection} label=${holder.connection_name} />` },
];

/** A message with its headers, and its body if that is JSON. */
function opened(message) {
  const { headers, ...properties } = message.properties || {};
  return { ...message, properties, headers, body: message.payload_encoding === "string" ? parsed(message.payload) : undefined };
}

/** The paths in a value that lead to something without parts. */
function paths(value, before, deep, found) {
  const isWhole = value === null || typeof value !== "object" || Array.isArray(value) || deep === 0;
  if (isWhole) found.add(before);
  else for (const [name, part] of Object.entries(value)) if (found.size < PATHS_MAX) paths(part, `${before}.${name}`, deep - 1, found);
}

/** The value at a path: a name in it may have dots. */
function dig(value, path) {
  if (value === null || typeof value !== "object") return undefined;
  if (Object.hasOwn(value, path)) return value[path];
  for (let dot = path.indexOf("."); dot > 0; dot = path.indexOf(".", dot + 1)) {
    const found = Object.hasOwn(value, path.slice(0, dot)) ? dig(value[path.slice(0, dot)], path.slice(dot + 1)) : undefined;
    if (found !== undefined) return found;
  }
  return undefined;
}

const ofPath = (path) => ({ title: path, key: encodeURIComponent(path), isExtra: true, cell: (row) => named(plain(dig(row, path) ?? "")) });

/** `query`: of the page; `columns` are those that were chosen. */
export function MessageTable({ messages, query }) {
  const rows = messages.map(opened);
  const found = new Set((query.columns || "").split(",").map(decoded).filter((one) => /^(properties|headers|body)\./.test(one)));
  for (const row of rows) for (const part of ["properties", "headers", "body"]) if (at(row, part)) paths(row[part], part, DEEP, found);
  const columns = [...FIXED, ...[...found].map(ofPath)];
  const add = (event) => {
    event.preventDefault();
    const { value } = event.target.elements.path;
    if (value) refine({ columns: [...chosenColumns(columns, query).slice(1).map(keyOfColumn), encodeURIComponent(value)].join(",") });
    event.target.reset();
  };
  return html`<div class="tools"><${ColumnChoice} columns=${columns} query=${query} />
      <form onSubmit=${add}><label>A column more <input name="path" placeholder="headers.tenant, body.customer.name" pattern="(properties|headers|body)\\..+" /></label> <button type="submit">Add</button></form></div>
    <${Rows} rows=${rows} columns=${chosenColumns(columns, query)} caption="Messages" by="position" />`;
}
