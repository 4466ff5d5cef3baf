// Forms: from a list of fields to an object. A field that is not right says so beside itself.
import { html, useState } from "./lib.js";
import { parsed } from "./format.js";
import { optionsOf, Why } from "./parts.js";
import { state, useKept } from "./state.js";

/** Fields of an object that is made. */
export const NAME = { name: "name", label: "Name", required: true };
export const inVhost = () => ({ name: "vhost", label: "Virtual host", value: state.vhost || "/", required: true });

/** Fields of what a message may say. */
export const MATCHES = [
  { name: "routing_key", label: "Routing key" },
  { name: "header", label: "Headers", type: "json" },
  { name: "text", label: "Text in the body" },
  { name: "filter", label: "Filter", hint: "like /amount > 100 AND tenant = 'acme'" },
];

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

/** `fields`: {name, label, type, options, value, hint, required, keys}; `keys`: see keys.js, for an object. `onSubmit(values)` gives true to clear the form.
 * `also`: another verb; `onSubmit(values, true)` if that was chosen. `username`: whose password is in it, for what keeps passwords.
 * `why`: the reason why the user may not; all is grey then. */
export function Form({ fields, verb, also, onSubmit, name, kind = "", username, why = "" }) {
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
    ${fields.map((field) => html`<${Field}
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
      return html`<li key=${key}><button type="button" disabled=${isGrey || value === null || isHere} onClick=${() => onChange(withKey(text, key, example))}>${key}</button>
        <small>${isHere ? `now ${JSON.stringify(value[key])}: ` : ""}${help}</small></li>`;
    })}
  </ul>${value === null && html`<p class="fault">What is written above is not a JSON object, so no key can be added.</p>`}</details>`;
}

function Field({ field, form, value, fault, isGrey, onChange }) {
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
  const onInput = (event) => onChange(event.currentTarget.value);
  let control;
  if (field.options) {
    control = html`<select ...${shared} value=${value} onChange=${onInput}>${optionsOf(field.options, value)}</select>`;
  } else if (field.type === "textarea" || field.type === "json") {
    control = html`<textarea ...${shared} rows=${field.rows || 2} spellcheck=${false} value=${value || ""}
      placeholder=${field.type === "json" ? "{}" : ""} onInput=${onInput}></textarea>`;
  } else {
    control = html`<input ...${shared} type=${field.type === "password" ? "password" : "text"} value=${value ?? ""}
      inputmode=${field.type === "number" ? "numeric" : undefined} autocomplete=${field.autocomplete || "off"}
      list=${field.list} onInput=${onInput} />`;
  }
  return html`<div class="field"><label for=${id}>${field.label}${field.required && html`<span aria-hidden="true"> *</span>`}</label>${control}${hint}
    ${field.keys && html`<${Keys} keys=${field.keys} text=${value} isGrey=${isGrey} onChange=${onChange} />`}</div>`;
}
