// Forms: of a command of the broker, or from a list of fields to an object. A field that is not right says so beside itself.
import { html, useState } from "./lib.js";
import { act, ask, exchangeSegment, path, usePoll } from "./api.js";
import { parsed } from "./format.js";
import { optionsOf, Waiting, Why } from "./parts.js";
import { state, useKept } from "./state.js";

/** Arguments of commands that choose messages by what they say. */
export const MATCHES = "routing_key header text filter";

/** Names of the broker that are offered while one is typed. */
const OFFERED = { to_queue: "queues", source: "exchanges", destination: "queues" };
const TYPES = { NUMBER: "number", BOOLEAN: "checkbox", JSON: "json" };
export const titled = (name) => (name[0].toUpperCase() + name.slice(1)).replaceAll("_", " ").replace("Vhost", "Virtual host");

/** The field of an argument of a command. `value`: what it is now. */
function fieldOf({ name, kind, help, is_required: isNeeded, default: given, options, keys }, value) {
  const isOptional = !isNeeded && given === null;
  const now = value ?? (name === "vhost" ? state.vhost || "/" : given) ?? undefined;
  const isWord = kind === "NAME" && isNeeded;
  return {
    label: titled(name),
    type: name === "password" ? name : TYPES[kind],
    options: options.length ? (isOptional ? [["", "–"], ...options] : options) : undefined,
    value: kind === "JSON" && now !== undefined ? JSON.stringify(now, null, 1) : now,
    keys,
    offered: OFFERED[name],
    required: (isNeeded && kind !== "TEXT") || (name === "vhost" && !isOptional),
    hint: isWord || options.length || (name === "vhost" && !isOptional) ? "" : `${help.replace(/^true: | ?\((default|docs)[^)]*\)/g, "")}${kind === "PATTERN" ? ": a regular expression" : ""}`,
  };
}

/**
 * The form of a command: the broker tells its fields, what they mean and what they are by default. `only`: those that are
 * shown, in their order, by default all but those in `fixed`; `values`: as they are now; `own`: by name, what is otherwise
 * here, and fields that are no argument; `hint`: instead of the help. Without `onSubmit` the command is run:
 * `change(values)` gives what is sent, `sure(values)` whether, `done(values)` a note, `after(result)` follows. See `Form`.
 */
export function CommandForm({ of, only, values = {}, own = {}, fixed = {}, change = (given) => given, sure, done = () => "", after = () => {}, hint, onSubmit, ...form }) {
  const view = usePoll(`leveret/commands?name=${encodeURIComponent(of)}`, { isOnce: true });
  const [command] = view.rows;
  if (!command) return html`<${Waiting} view=${view} what="the form" />`;
  const known = Object.fromEntries(command.arguments.map((one) => [one.name, one]));
  const names = only ? only.split(" ") : Object.keys(known).filter((name) => name !== "as_user" && !(name in fixed));
  const fields = names.map((name) => {
    const value = values[name] ?? values[name.replaceAll("_", "-")];
    return { name, ...(known[name] ? fieldOf(known[name], value) : { label: titled(name), value }), ...(hint && { hint }), ...own[name] };
  });
  /** What is empty is left out where nothing is something else than an empty text. */
  const isGiven = ([name, value]) => value !== "" || known[name]?.is_required || known[name]?.kind === "PATTERN";
  const run = async (given) => {
    const sent = change({ ...fixed, ...Object.fromEntries(Object.entries(given).filter(isGiven)) });
    if (sure && !(await sure(sent))) return false;
    const target = command.path.replace(/{(\w+)}/g, (_, name) => path(exchangeSegment(sent[name])));
    const asked = new URLSearchParams(Object.entries(sent).filter(([, value]) => value !== undefined && typeof value !== "object"));
    const result = await act(done(sent), command.method, ...(command.method === "GET" ? [`${target}?${asked}`] : [target, { body: sent }]));
    if (result) after(result.value);
    return Boolean(result);
  };
  return html`<${Form} fields=${fields} onSubmit=${onSubmit || run} ...${form} />`;
}

/** The value of a field; throws what is wrong with it. */
function read(field, text) {
  if (field.type === "checkbox") return Boolean(text);
  const given = text === undefined ? "" : text;
  if (given === "") {
    if (field.required) throw new Error("is needed");
    return field.type === "json" ? {} : field.type === "number" ? undefined : "";
  }
  if (field.type === "number") {
    const number = Number(given);
    if (!Number.isInteger(number)) throw new Error("is not a whole number");
    return number;
  }
  if (field.type === "json") {
    const value = objectOf(given);
    if (!value) throw new Error('is not a JSON object, like {"name": "value"}');
    return value;
  }
  return given;
}

/** `fields`: {name, label, type, options, value, hint, required, keys, when}; `keys`: of an object, each with an example and what it does; `when(values)`: whether it is shown. `onSubmit(values)` gives true to clear the form.
 * `also`: another verb; `onSubmit(values, true)` if that was chosen. `username`: whose password is in it, for what keeps passwords.
 * `why`: the reason why the user may not; all is grey then. */
function Form({ fields, verb, also, onSubmit, name, kind = "", username, why = "" }) {
  const initial = () => Object.fromEntries(fields.map((field) => [field.name, field.value]));
  const written = (values) => Object.fromEntries(fields.filter((field) => field.type !== "password").map((field) => [field.name, values[field.name]]));
  const [given, setGiven] = useKept(`${name || verb} ${JSON.stringify(initial())}`, initial(), written);
  const [faults, setFaults] = useState({});
  const [isBusy, setBusy] = useState(false);
  async function submit(event) {
    event.preventDefault();
    const values = {};
    const found = {};
    for (const field of fields) {
      try {
        values[field.name] = read(field, given[field.name]);
      } catch (fault) {
        found[field.name] = fault.message;
      }
    }
    setFaults(found);
    const first = Object.keys(found)[0];
    if (first) {
      event.target.elements[first].focus();
      return;
    }
    setBusy(true);
    const isDone = await onSubmit(values, Boolean(also && event.submitter?.value));
    setBusy(false);
    if (isDone) setGiven(initial());
  }
  return html`<form class="form ${kind}" onSubmit=${submit} aria-label=${name || verb} noValidate>
    ${username && html`<input class="hidden" name="username" autocomplete="username" value=${username} readonly tabindex="-1" aria-hidden="true" />`}
    ${fields.filter((field) => !field.when || field.when(given)).map((field) => html`<${Field}
      key=${field.name}
      field=${field}
      form=${name || verb}
      value=${given[field.name]}
      fault=${faults[field.name]}
      isGrey=${Boolean(why)}
      onChange=${(value) => setGiven((old) => ({ ...old, [field.name]: value }))}
   />`)}
    <div class="buttons"><button type="submit" class="main" disabled=${isBusy || Boolean(why)}>${verb}</button>
      ${also && html`<button type="submit" value="also" disabled=${isBusy || Boolean(why)}>${also}</button>`}
      ${why && html`<${Why} text=${why} />`}</div>
  </form>`;
}

/** The object that a text of JSON is; null: it is none. */
function objectOf(text) {
  const value = parsed(text || "{}");
  return value && typeof value === "object" && !Array.isArray(value) ? value : null;
}

/** The text of an object with one key more. It is not parsed: numbers would change. */
function withKey(text, key, example) {
  const whole = text || "{}";
  const end = whole.lastIndexOf("}");
  const before = whole.slice(0, end).trimEnd();
  return `${before}${before.endsWith("{") ? "" : ","}\n ${JSON.stringify(key)}: ${JSON.stringify(example)}\n${whole.slice(end)}`;
}

/** Keys that an object can have, with what they do and their value now; a click adds one with an example. */
function Keys({ keys, text, isGrey, onChange }) {
  const value = objectOf(text);
  return html`<details class="keys"><summary>Keys to add</summary><ul class="pairs">
    ${keys.map(([key, example, help]) => {
      const isHere = value !== null && key in value;
      return html`<li key=${key}><button disabled=${isGrey || value === null || isHere} onClick=${() => onChange(withKey(text, key, example))}>${key}</button>
        <small>${isHere ? `now ${JSON.stringify(value[key])}: ` : ""}${help}</small></li>`;
    })}
  </ul>${value === null && html`<p class="fault">What is written above is not a JSON object, so no key can be added.</p>`}</details>`;
}

function Field({ field, form, value, fault, isGrey, onChange }) {
  const [names, setNames] = useState([]);
  const id = `${form}-${field.name}`.replace(/[^A-Za-z0-9-]/g, "-");
  const about = fault || field.hint;
  const shared = {
    id,
    name: field.name,
    disabled: isGrey,
    "aria-describedby": about ? `${id}-about` : undefined,
    "aria-invalid": fault ? "true" : undefined,
    "aria-required": field.required ? "true" : undefined,
  };
  const hint = about && html`<small id="${id}-about" class=${fault ? "fault" : ""}>${fault ? `${field.label} ${fault}` : about}</small>`;
  if (field.type === "checkbox") {
    return html`<div class="field check">
      <label for=${id}><input ...${shared} type="checkbox" checked=${Boolean(value)}
        onChange=${(event) => onChange(event.currentTarget.checked)} /> ${field.label}</label>${hint}
    </div>`;
  }
  const onInput = (event) => {
    const text = event.currentTarget.value;
    onChange(text);
    if (text && field.offered) ask("GET", `leveret/search?q=${encodeURIComponent(text)}`).then((found) => setNames([...new Set(found[field.offered].map((one) => one.name))]), () => {});
  };
  let control;
  if (field.options) {
    control = html`<select ...${shared} value=${value} onChange=${onInput}>${optionsOf(field.options, value)}</select>`;
  } else if (field.type === "textarea" || field.type === "json") {
    control = html`<textarea ...${shared} rows=${field.rows || 2} spellcheck=${false} value=${value || ""}
      placeholder=${field.type === "json" ? "{}" : ""} onInput=${onInput}></textarea>`;
  } else {
    control = html`<input ...${shared} type=${field.type === "password" ? "password" : "text"} value=${value ?? ""}
      inputmode=${field.type === "number" ? "numeric" : undefined} autocomplete=${field.autocomplete || "off"}
      list=${field.offered && `${id}-names`} onInput=${onInput} />
      ${field.offered && html`<datalist id=${`${id}-names`}>${names.map((name) => html`<option key=${name} value=${name} />`)}</datalist>`}`;
  }
  return html`<div class="field"><label for=${id}>${field.label}${field.required && html`<span aria-hidden="true"> *</span>`}</label>${control}${hint}
    ${field.keys?.length > 0 && html`<${Keys} keys=${field.keys} text=${value} isGrey=${isGrey} onChange=${onChange} />`}</div>`;
}
