// The broker's log, as it is written.
import { Choice, column, html, moment, refine, Rows } from "../common.js";
import { Stream } from "../stream.js";

const LEVELS = [["debug", "all"], ["info", "info and graver"], ["warning", "warning and graver"], ["error", "error and graver"]];
const COLUMNS = [
  column("At", "at_ms", (at) => html`<time>${moment(at)}</time>`),
  column("Level", "level", (level) => html`<span class=${{ warning: "warning", error: "fault", critical: "fault" }[level] || ""}>${level}</span>`),
  column("Line", "text"),
  column("Logger", "logger", undefined, { isWide: true }),
];

export function Log({ query }) {
  const level = query.level || "debug";
  return html`<${Stream} title="Log" about="Of the node that answers" target=${`leveret/log?level=${level}`} name="line" what="line" draw=${(rows) => html`<${Rows} rows=${rows} columns=${COLUMNS} caption="Log" by="number" />`}>
    <${Choice} label="Level" value=${level} options=${LEVELS} onChange=${(one) => refine({ level: one })} /><//>`;
}
