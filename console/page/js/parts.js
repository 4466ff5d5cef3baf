// What pages are made of. Everything that comes from the broker is a text node: a name can be anything.
import { html, useEffect, useRef, useState } from "./lib.js";
import { duration, moment, plain } from "./format.js";
import { here, to } from "./route.js";
import { forget, set, state, useKept, useShared } from "./state.js";

export function Panel({ title, children, aside, id }) {
  return html`<section class="panel" aria-labelledby=${id || slug(title)}>
    <header><h2 id=${id || slug(title)}>${title}</h2>${aside}</header>
    ${children}
  </section>`;
}

const slug = (text) => `panel-${String(text).toLowerCase().replace(/[^a-z0-9]+/g, "-")}`;

/** A section that opens, for what is seldom wanted. */
export function Fold({ title, children, isOpen = false }) {
  const [open, setOpen] = useKept(title, isOpen);
  return html`<details class="panel fold" open=${open} onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary>${title}</summary>
    ${open && html`<div class="inside">${children}</div>`}
  </details>`;
}

/** The head of the page of one object. `list`: the place and the title of the list that it is in; `vhost`: where, if it has one; `shown`: its name. */
export const Head = ({ list: [place, title], what, name, shown = name, vhost, view, children }) => html`
  <p class="crumbs"><a href=${to([place])}>${title}</a>${vhost !== undefined && html` in <a class="name" href=${to(["vhosts", vhost])}>${vhost}</a>`}</p>
  <h1><span class="name">${shown}</span> ${view.isHere && children}</h1>
  <${Waiting} view=${view} what=${`${what} ${name}`} />`;

/** Links to the parts of a page, of which one is shown: kept in the address. `tabs`: [key, label]. */
export const Tabs = ({ tabs, shown }) => html`<nav class="tabs" aria-label="Parts of this page">
  ${tabs.map(([tab, label]) => html`<a key=${tab} href=${to(here().segments, { tab })} aria-current=${tab === shown ? "true" : undefined}>${label}</a>`)}</nav>`;

/** Names and values. `rows`: [name, value]; those without a value are left out. */
export function Facts({ rows }) {
  return html`<dl class="facts">
    ${rows
      .filter(([, value]) => value !== undefined && value !== null && value !== "")
      .map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}
  </dl>`;
}

/** One big number. `link`: where it leads. */
export function Tile({ label, value, link, kind = "" }) {
  const inner = html`<span class="tile-value">${value}</span><span class="tile-label">${label}</span>`;
  return link ? html`<a class="tile ${kind}" href=${link}>${inner}</a>` : html`<div class="tile ${kind}">${inner}</div>`;
}

/** Those of a menu: [key, text], or a text that is its own key. */
export const optionsOf = (options, value) => options.map((one) => {
  const [key, text = key] = [].concat(one);
  return html`<option key=${key} value=${key} selected=${key === value}>${text}</option>`;
});

/** A menu. `options`: see `optionsOf`. */
export const Choice = ({ label, value, options, onChange, ...more }) => html`<label>${label}${" "}
  <select ...${more} value=${value} onChange=${(event) => onChange(event.currentTarget.value)}>
    ${optionsOf(options, value)}</select></label>`;

/** A short word with a meaning; never by colour alone. */
export const Badge = ({ text, title, kind = "" }) => html`<abbr class="badge ${kind}" title=${title || text}>${text}</abbr>`;

/** A name that narrows what is shown; the button ends that. `label`: of the button. */
export const Chip = ({ name, label, onClose }) => html`<span class="badge chip"><span class="name">${name}</span> <button class="sort" aria-label=${label} onClick=${onClose}>×</button></span>`;

/** A value as people read it: abilities by their names, what is empty as such. */
function worded(value) {
  if (value === "") return "(empty)";
  if (typeof value === "string") return value;
  const isSet = value && typeof value === "object" && Object.values(value).every((one) => one === true);
  return isSet ? Object.keys(value).join(", ").replaceAll("_", " ") : JSON.stringify(value);
}

/** A table of values: arguments, headers, client properties. */
export function Table({ value, empty = "none" }) {
  const entries = value && typeof value === "object" ? Object.entries(value) : [];
  if (!entries.length) return html`<span class="dim">${empty}</span>`;
  return html`<ul class="pairs">
    ${entries.map(([name, one]) => html`<li key=${name}><b>${name}</b> ${worded(one)}</li>`)}
  </ul>`;
}

/** Both values of what differs: {key, now, then}. */
export const Differs = ({ rows }) => rows.length > 0 && html`<ul class="pairs">${rows.map((row) => html`<li key=${row.key}><b>${row.key}</b> ${plain(row.now ?? "–")} → ${plain(row.then ?? "–")}</li>`)}</ul>`;

/** When it was, in words; the date on hover. */
export const Ago = ({ ms }) => html`<time title=${moment(ms)}>${duration(Date.now() - ms)} ago</time>`;

/** Something takes long: for how long by now, at most how long, and a way to end it. */
export function Busy({ since, text, onCancel }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((count) => count + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  return html`<div class="busy"><progress aria-label=${text}></progress> <span role="status">${text}</span> <small>${duration(Date.now() - since)}</small>
    <button onClick=${onCancel}>Cancel</button></div>`;
}

/** What stands where values are to come, or cannot. */
export function Waiting({ view, what }) {
  const { data, error, isLoading, isRefused } = view;
  if (isRefused) {
    const text = error.status === 404 ? `${what}: not here. It was deleted, or you may not see it.` : error.message;
    return html`<p class="empty" role="alert">${text}</p>`;
  }
  return data === undefined && isLoading ? html`<p class="empty" role="status">Loading ${what} …</p>` : null;
}

/** A button. `why`: the reason why the user may not press it: it is grey then. */
export function Button({ label, onClick, disabled = false, why = "", kind = "" }) {
  if (!why) return html`<button class=${kind} onClick=${onClick} disabled=${disabled}>${label}</button>`;
  return html`<span class="denied" title=${why}><button class=${kind} disabled>${label}</button> <${Why} text=${why} /></span>`;
}

export const Why = ({ text }) => html`<small class="why">${text}</small>`;

/** A button that does something that cannot be undone asks first: see `confirm`. */
export const Danger = (given) => html`<${Button} ...${given} kind="danger" />`;

/**
 * The second step. `text`: what. `says`: what will happen, a sentence each; `rows`: by queue. `typed`: what has to be
 * typed, for what hits a lot.
 * Resolves to true, or to the text of `asks`, or to false.
 */
export function confirm({ title, text, says = [], rows = [], typed = "", verb = title, asks = "" }) {
  return new Promise((resolve) => set({ question: { title, text, says, rows, typed, verb, asks, resolve } }));
}

/** Queues that a second step names. */
const ROWS_MAX = 8;

/** Where the second step is taken: a modal dialogue, which keeps the focus and closes by Escape. */
export function Question() {
  const { question } = useShared();
  const dialog = useRef(null);
  const [given, setGiven] = useState("");
  useEffect(() => {
    if (!question) return;
    setGiven("");
    if (!dialog.current.open) dialog.current.showModal();
  }, [question]);
  if (!question) return null;
  const { title, text, says, rows, typed, verb, asks, resolve } = question;
  const close = (answer) => {
    set({ question: null });
    resolve(answer);
  };
  const submit = (event) => {
    event.preventDefault();
    close(asks ? given || true : true);
  };
  return html`<dialog ref=${dialog} aria-labelledby="question" onCancel=${() => close(false)}>
    <form onSubmit=${submit}>
      <h2 id="question">${title}</h2>
      <p>${text}</p>
      ${says.length > 0 && html`<ul class="says">${says.map((one) => html`<li key=${one}>${one}</li>`)}</ul>`}
      ${rows.length > 0 && html`<ul class="pairs">${rows.slice(0, ROWS_MAX).map((one) => html`<li key=${one}>${one}</li>`)}${rows.length > ROWS_MAX && html`<li>…</li>`}</ul>`}
      ${typed &&
      html`<label>To go on, type <b class="name">${typed}</b>
        <input value=${given} onInput=${(event) => setGiven(event.currentTarget.value)} autocomplete="off" /></label>`}
      ${asks &&
      html`<label>${asks}<input value=${given} onInput=${(event) => setGiven(event.currentTarget.value)} /></label>`}
      <div class="buttons">
        <button onClick=${() => close(false)}>Cancel</button>
        <button type="submit" class="danger" disabled=${Boolean(typed) && given !== typed}>${verb}</button>
      </div>
    </form>
  </dialog>`;
}

/** What was done lately, for eyes and for screen readers. */
export function Notes() {
  const { notes } = useShared();
  return html`<div class="notes">
    <div role="status" aria-live="polite">
      ${notes.filter((one) => !one.isFault).map((one) => html`<p key=${one.id} class="note">${one.text}</p>`)}
    </div>
    <div role="alert">
      ${notes
        .filter((one) => one.isFault)
        .map(
          (one) => html`<p key=${one.id} class="note fault">
            <span>${one.text}</span>
            <button aria-label="Close this message" onClick=${() => forget(one.id)}>×</button>
          </p>`,
        )}
    </div>
  </div>`;
}

/** The broker does not answer: since when, and that it is tried again. */
export function GoneBand() {
  const { gone } = useShared();
  const [, tick] = useState(0);
  useEffect(() => {
    if (!gone) return undefined;
    const timer = setInterval(() => tick((count) => count + 1), 1000);
    return () => clearInterval(timer);
  }, [Boolean(gone)]);
  if (!gone) return null;
  return html`<div class="band fault" role="alert">
    The broker has not answered since ${moment(gone.since)}. What is shown is from then.${" "}
    ${state.every ? "It is asked again by itself." : "The page asks again when it is reloaded."}
  </div>`;
}
