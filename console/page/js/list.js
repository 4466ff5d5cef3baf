// Lists: a page of rows at a time, sorted and filtered by the broker where it can, here where it cannot.
import { html, useEffect, useMemo, useState, visible } from "./lib.js";
import { UNKNOWN, usePoll } from "./api.js";
import { at, keyBy } from "./columns.js";
import { emptiness } from "./may.js";
import { several } from "./format.js";
import { Choice, Waiting } from "./parts.js";
import { refine } from "./route.js";

const SIZE = 100;
/** A whole list that is no longer needs no filter. */
const SHORT = 10;

/** The name of a column in the address. */
export const keyOfColumn = (column) => column.key || column.title.toLowerCase().replace(/[^a-z0-9]+/g, "-");

/** The columns that the address names, or the default ones; always the first and the buttons. */
export function chosenColumns(columns, query) {
  if (!query.columns) return columns.filter((column) => !column.isExtra);
  const wanted = new Set(query.columns.split(","));
  return columns
    .filter((column, index) => index === 0 || !column.title || wanted.has(keyOfColumn(column)))
    .map((column) => ({ ...column, isWide: false }));
}

/** Which columns are shown: kept in the address, which can be shared. */
export function ColumnChoice({ columns, query }) {
  const [isOpen, setOpen] = useState(false);
  const shown = new Set(chosenColumns(columns, query).map(keyOfColumn));
  const choose = (column, isOn) => {
    const keys = columns.slice(1).filter((one) => one.title).filter((one) => (one === column ? isOn : shown.has(keyOfColumn(one))));
    refine({ columns: keys.map(keyOfColumn).join(",") || "none" });
  };
  return html`<details class="columns" onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary>Columns</summary>
    ${isOpen && html`<div class="inside">
      ${columns.slice(1).filter((column) => column.title).map((column) => html`<label key=${column.title}><input type="checkbox" checked=${shown.has(keyOfColumn(column))}
        onChange=${(event) => choose(column, event.currentTarget.checked)} /> ${visible(column.title)}</label>`)}
      <button disabled=${!query.columns} onClick=${() => refine({ columns: "" })}>As by default</button>
    </div>`}
  </details>`;
}

const rowLinks = (element) => [...element.querySelectorAll("tbody th[scope=row] a")];

/** Arrow keys move between rows, from one name to the next; Enter opens it, as any link. */
function byArrows(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
  const links = rowLinks(event.currentTarget);
  const row = event.target.closest("tbody tr");
  const next = row ? links.findIndex((link) => row.contains(link)) + step : 0;
  if (!links[next]) return;
  event.preventDefault();
  links[next].focus();
}

/** The largest number first, the first letter first. */
const sortBy = (column) => refine({ sort: column ? column.sort : "", reverse: column?.isNumber ? "1" : "", page: "" });

function compare(one, other) {
  if (one === other) return 0;
  if (one === undefined || one === null) return -1;
  if (other === undefined || other === null) return 1;
  return one < other ? -1 : 1;
}

/** Rows of a whole list, as the query wants them, in the frame of a page. */
function framed(rows, query, filterBy) {
  const part = (query.name || "").toLowerCase();
  let found = rows.filter((row) => filterBy.some((field) => String(at(row, field) ?? "").toLowerCase().includes(part)));
  if (query.sort) found = [...found].sort((one, other) => compare(at(one, query.sort), at(other, query.sort)));
  if (query.reverse) found = [...found].reverse();
  const pages = Math.max(1, Math.ceil(found.length / SIZE));
  const page = Math.min(Number(query.page) || 1, pages);
  return {
    items: found.slice((page - 1) * SIZE, page * SIZE),
    page,
    page_count: pages,
    filtered_count: found.length,
    total_count: rows.length,
  };
}

function target(base, query) {
  const wanted = new URLSearchParams({ page: query.page || 1, page_size: SIZE });
  if (query.name) wanted.set("name", query.name);
  if (query.regex) wanted.set("use_regex", "true");
  if (query.sort) wanted.set("sort", query.sort);
  if (query.reverse) wanted.set("sort_reverse", "true");
  return `${base}?${wanted}`;
}

/**
 * A list that is asked for. `isPaged`: the broker pages it. `columns`: {title, cell, sort, isNumber, isWide, isExtra}; the
 * first is the row's name; an extra one is shown when it is chosen. `by`: the fields, or `keyOf`: of a row, that tell it apart. `actions(rows, reload)`: buttons for the rows that are chosen.
 * `isWhole`: it shows users all there is, whatever virtual hosts they see.
 */
export function List({ base, query, columns, caption, what, empty, by = "name", keyOf = keyBy(by), isPaged = true, filterBy = ["name"], actions, isWhole = false }) {
  const view = usePoll(isPaged ? target(base, query) : base);
  const [chosen, setChosen] = useState(() => new Set());
  const page = useMemo(() => {
    if (view.data === undefined) return null;
    return Array.isArray(view.data) ? framed(view.data, query, filterBy) : view.data;
  }, [view.data, JSON.stringify(query)]);
  useEffect(() => {
    // The last page is gone when enough rows are.
    if (view.error?.status === 400 && Number(query.page) > 1) refine({ page: "" });
  }, [view.error]);
  const { isRefused } = view;
  const rows = page && !isRefused ? page.items : [];
  const picked = rows.filter((row) => chosen.has(keyOf(row)));
  return html`<div class="list">
    <${Tools} query=${query} page=${page} what=${what} isPaged=${isPaged} columns=${columns} />
    ${actions && html`<${Chosen} rows=${picked} what=${what}>${actions(picked, () => { setChosen(new Set()); view.reload(); })}<//>`}
    <${Waiting} view=${view} what=${`${what}s`} />
    ${page && !isRefused && rows.length === 0 && html`<p class="empty">${page.total_count ? `No ${what} matches this filter.` : isWhole ? empty : emptiness(empty)}</p>`}
    ${rows.length > 0 &&
    html`<${Rows} rows=${rows} columns=${chosenColumns(columns, query)} caption=${caption} keyOf=${keyOf} query=${query}
      chosen=${actions ? chosen : null} setChosen=${setChosen} isOld=${Boolean(view.error)} />`}
    ${page?.page_count > 1 && html`<${Pager} page=${page} />`}
  </div>`;
}

/** What can be done with the rows that are chosen. */
export const Chosen = ({ rows, what, children }) => rows.length > 0 && html`<div class="chosen" role="group" aria-label="What to do with those chosen">
  <span>${several(rows.length, what)} chosen</span> ${children}</div>`;

function Tools({ query, page, what, isPaged, columns }) {
  const [text, setText] = useState(query.name || "");
  useEffect(() => {
    if (text === (query.name || "")) return undefined;
    const timer = setTimeout(() => refine({ name: text, page: "" }), 250);
    return () => clearTimeout(timer);
  }, [text]);
  const counted = page && (query.name ? `${several(page.filtered_count, what)} of ${page.total_count}` : several(page.total_count, what));
  const intoRows = (event) => {
    const [first] = event.key === "ArrowDown" ? rowLinks(event.currentTarget.closest(".list")) : [];
    if (!first) return;
    event.preventDefault();
    first.focus();
  };
  const isShort = page?.total_count <= SHORT && !query.name;
  if (isShort && !isPaged) return null;
  const sortable = columns.filter((column) => column.sort);
  return html`<div class="tools" role="search">
    <label class="filter">Filter <input type="search" value=${text} onInput=${(event) => setText(event.currentTarget.value)} onKeyDown=${intoRows} /></label>
    ${isPaged && html`<label><input type="checkbox" checked=${Boolean(query.regex)}
      onChange=${(event) => refine({ regex: event.currentTarget.checked ? "1" : "", page: "" })} /> regular expression</label>`}
    <div class="narrow"><${Choice} label="Sort by" value=${query.sort || ""} options=${[["", "–"], ...sortable.map((column) => [column.sort, column.title])]}
      onChange=${(sort) => sortBy(sortable.find((column) => column.sort === sort))} /></div>
    ${columns.some((column) => column.isExtra) && html`<${ColumnChoice} columns=${columns} query=${query} />`}
    <span class="counted" role="status">${counted || ""}</span>
  </div>`;
}

function Pager({ page }) {
  const [isFirst, isLast] = [page.page <= 1, page.page >= page.page_count];
  const turn = (label, number, disabled) => html`<button onClick=${() => refine({ page: number > 1 ? number : "" })} disabled=${disabled}>${label}</button>`;
  return html`<nav class="pager" aria-label="Pages of the list">
    ${turn("First", 1, isFirst)} ${turn("Previous", page.page - 1, isFirst)}
    <span>Page ${page.page} of ${page.page_count}</span>
    ${turn("Next", page.page + 1, isLast)} ${turn("Last", page.page_count, isLast)}
  </nav>`;
}

const kindOf = (column) => `${column.isNumber ? "number" : ""} ${column.isWide ? "wide" : ""} ${column.title ? "" : "does"}`.trim();

/** A table; `by`, `keyOf`: see `List`; `empty`: what is said when it has no rows. With `query` its columns sort; with `chosen` its rows can be chosen. */
export function Rows({ rows, columns, caption, by = "name", keyOf = keyBy(by), empty, query, chosen, setChosen, isOld = false }) {
  if (!rows.length) return html`<p class="empty">${rows === UNKNOWN ? "Loading …" : empty}</p>`;
  const all = chosen && rows.every((row) => chosen.has(keyOf(row)));
  const choose = (keys, isOn) => {
    const next = new Set(chosen);
    for (const key of keys) isOn ? next.add(key) : next.delete(key);
    setChosen(next);
  };
  return html`<div class="scroll" tabindex="0" role="group" aria-label=${caption} onKeyDown=${byArrows}>
    <table role="table" class=${isOld ? "old" : ""}>
      <caption class="hidden">${caption}</caption>
      <thead role="rowgroup"><tr role="row">
        ${chosen && html`<th role="columnheader" scope="col" class="choose"><input type="checkbox" aria-label="Choose all on this page" checked=${all}
          onChange=${(event) => choose(rows.map(keyOf), event.currentTarget.checked)} /></th>`}
        ${columns.map((column) => html`<${Head} key=${column.title} column=${column} query=${query} />`)}
      </tr></thead>
      <tbody role="rowgroup">
        ${rows.map((row) => {
          const key = keyOf(row);
          return html`<tr role="row" key=${key}>
            ${chosen && html`<td role="cell" class="choose"><input type="checkbox" aria-label="Choose this row" checked=${chosen.has(key)}
              onChange=${(event) => choose([key], event.currentTarget.checked)} /></td>`}
            ${columns.map((column, index) =>
              index === 0
                ? html`<th role="rowheader" key=${column.title} scope="row" class=${kindOf(column)}>${column.cell(row)}</th>`
                : html`<td role="cell" key=${column.title} class=${kindOf(column)} data-title=${visible(column.title)}>${column.cell(row)}</td>`,
            )}
          </tr>`;
        })}
      </tbody>
    </table>
  </div>`;
}

function Head({ column, query }) {
  const isSorted = query && column.sort && query.sort === column.sort;
  if (!query || !column.sort) return html`<th role="columnheader" scope="col" class=${kindOf(column)}>${visible(column.title) || html`<span class="hidden">Actions</span>`}</th>`;
  const isDown = Boolean(query.reverse);
  const sort = () => {
    if (isSorted) refine({ reverse: isDown ? "" : "1", page: "" });
    else sortBy(column);
  };
  return html`<th role="columnheader" scope="col" class=${kindOf(column)} aria-sort=${isSorted ? (isDown ? "descending" : "ascending") : "none"}>
    <button class="sort" onClick=${sort}>${column.title}<span aria-hidden="true" class=${isSorted ? "" : "faint"}>${isSorted ? (isDown ? " ↓" : " ↑") : " ↕"}</span></button>
  </th>`;
}
