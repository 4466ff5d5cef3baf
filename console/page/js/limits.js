// The limits of one thing, all in one form.
import { html } from "./lib.js";
import { act } from "./api.js";
import { Form } from "./form.js";
import { Panel } from "./parts.js";
import { secondStep } from "./second_step.js";

/** `names`: of all limits; `limits`: those that are set. `place`: where they are set; `preview`: which says what they refuse. */
export function Limits({ names, limits = {}, place, preview, reload, why = "" }) {
  const fields = names.map((name) => ({ name: name.replace("-", "_"), label: name.replace("-", " "), type: "number", value: limits[name], hint: "empty: no limit" }));
  const save = async (values) => {
    const body = Object.fromEntries(fields.map(({ name }) => [name, values[name] ?? -1]));
    const text = fields.map(({ name, label }) => `${label}: ${values[name] ?? "no limit"}`).join(", ");
    if (preview && !(await secondStep({ target: preview, body, isQuiet: true, title: "Set these limits", text, verb: "Set" }))) return false;
    if (await act("The limits are set.", "PUT", place, { body })) reload();
    return false;
  };
  return html`<${Panel} title="Limits"><${Form} key=${JSON.stringify(limits)} name="Limits" kind="row" fields=${fields} verb="Set" onSubmit=${save} why=${why} /><//>`;
}
