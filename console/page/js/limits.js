// The limits of one thing, all in one form.
import { html } from "./lib.js";
import { CommandForm } from "./form.js";
import { Panel } from "./parts.js";
import { secondStep } from "./second_step.js";

/** `of`: the command that sets them; `name`: of what they are; `limits`: those that are set; `preview`: which says what they refuse. */
export function Limits({ of, name, limits = {}, preview, reload, why = "" }) {
  const change = (given) => Object.fromEntries(Object.entries(given).map(([key, value]) => [key, value ?? -1]));
  const sure = ({ name: _, ...body }) => {
    const text = Object.entries(body).map(([key, value]) => `${key.replace("_", " ")}: ${value < 0 ? "no limit" : value}`).join(", ");
    return !preview || secondStep({ target: preview, body, isQuiet: true, title: "Set these limits", text, verb: "Set" });
  };
  return html`<${Panel} title="Limits"><${CommandForm} key=${JSON.stringify(limits)} of=${of} fixed=${{ name }} values=${limits} hint="empty: no limit" name="Limits" kind="row" verb="Set" change=${change} sure=${sure}
    done=${() => "The limits are set."} after=${reload} why=${why} /><//>`;
}
