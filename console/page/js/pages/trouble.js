// What waits, and for what: publishers for room, messages for their time.
import { act, asIs, Button, bytes, Chosen, code, column, confirm, count, Danger, duration, ExchangeLink, Facts, html, Limited, moment, note, OF_QUEUE, OF_VHOST, ofClient, ofLimit, Panel, path, Rows, several, Tile, to, usePoll, useState, Waiting, WIDE } from "../common.js";

/** Limits of the number of messages end so; all others are of octets. */
const shownAs = (limit) => (/messages|count|length/.test(limit) ? count : bytes);

export function Blocked() {
  const view = usePoll("leveret/blocked");
  const { alarm, blocked = [], usage = [], held = {}, slow_consumers: slow = {} } = view.data || {};
  const waiting = [
    ofClient("Connection"),
    OF_VHOST,
    { title: "Waits for", cell: (one) => html`room in <${Limited} text=${one.destination} /> <small>${one.limit}</small>` },
    column("For", "waiting_ms", duration),
    { title: "Held publishes", isNumber: true, cell: (one) => count(one.held.publishes || 0) },
    { title: "Their bytes", isNumber: true, isWide: true, cell: (one) => bytes(one.held.bytes || 0) },
    { title: "Read", isWide: true, cell: (one) => (one.held.unread ? "no longer" : "yes") },
  ];
  const limits = [
    column("Destination", "destination", (text) => html`<${Limited} text=${text} />`),
    column("Limit", "limit", asIs),
    { title: "Used", cell: (one) => html`<${Share} used=${one.used} most=${one.max} shown=${shownAs(one.limit)} />` },
    { title: "Opens again below", isNumber: true, isWide: true, cell: (one) => shownAs(one.limit)(one.low) },
    { title: "Full", cell: (one) => (one.full ? html`<b class="fault">full</b>` : "no") },
    column("Waiting", "waiting", count),
  ];
  return html`
    <h1>Blocked and full</h1>
    <${Waiting} view=${view} what="what is blocked" />
    ${view.data && html`
      ${alarm && html`<div class="band fault" role="alert">Alarm: all publishers are blocked${typeof alarm === "string" ? `: ${alarm}` : ""}.</div>`}
      <div class="tiles">
        <${Tile} label="Blocked connections" value=${count(blocked.length)} kind="strong" />
        <${Tile} label="Held publishes" value=${count(held.publishes)} />
        <${Tile} label="Held in memory" value=${bytes(held.bytes)} />
        <${Tile} label="Limits reached" value=${count(usage.filter((one) => one.full).length)} />
      </div>
      <${Panel} title="Who waits">
        <${Rows} rows=${blocked} columns=${waiting} caption="Blocked connections" by="connection" empty="No client is blocked." />
      <//>
      <${Panel} title="Limits">
        <${Rows} rows=${usage} columns=${limits} caption="Limits" by="destination limit" empty="No destination has a limit that blocks publishers." />
      <//>
      ${Object.keys(slow).length > 0 && html`<${Panel} title="Slow consumers"><${Facts} rows=${Object.entries(slow).map(([name, value]) => [name, count(value)])} /><//>`}
    `}`;
}

/** How much of a limit is used: a bar, and the same in words. */
function Share({ used, most, shown }) {
  return html`<span class="share">${most > 0 && html`<meter min="0" max=${most} low=${most * 0.8} high=${most * 0.8} optimum="0" value=${Math.min(used, most)} aria-hidden="true"></meter>`} ${ofLimit(used, most, shown)}</span>`;
}

export function Scheduled() {
  return html`<h1>Scheduled</h1><p class="dim">Messages that come later: redeliveries with a delay, delayed exchanges, delays of their publisher. Soonest first.</p><${ScheduledRows} />`;
}

/** Of one queue, or of all. `why`: the reason why the user may not change these. */
export function ScheduledRows({ vhost, queue, why = "" }) {
  const [after, setAfter] = useState(0);
  const [chosen, setChosen] = useState(() => new Set());
  const isOne = queue !== undefined;
  const view = usePoll(isOne ? `${path("leveret", "scheduled", vhost, queue)}?after=${after}` : "leveret/scheduled");
  const found = (view.data?.items || []).map((one) => (isOne ? { ...one, vhost, queue } : one));
  const keyOf = (one) => `${one.vhost}\n${one.queue}\n${one.id}`;
  /** One request a queue; what is no longer there is told. */
  const change = async (rows, done, body) => {
    const places = new Map();
    for (const one of rows) {
      const place = path("leveret", "scheduled", one.vhost, one.queue);
      places.set(place, [...(places.get(place) || []), one.id]);
    }
    let changed = 0;
    for (const [place, ids] of places) {
      const answer = await act("", "POST", place, { body: { ...body, ids } });
      changed += answer ? answer.value.ids.length : 0;
    }
    if (changed) note(`${several(changed, "message")} ${done}${changed < rows.length ? `; ${count(rows.length - changed)} did not wait any longer` : ""}.`);
    setChosen(new Set());
    view.reload();
  };
  const these = (rows) => (rows.length > 1 ? several(rows.length, "message") : `message ${rows[0].id} of ${rows[0].queue}`);
  const fire = async (rows) => {
    const text = `To be ready now: ${these(rows)}. They can get another time only before that.`;
    if (await confirm({ title: "Fire messages", text, verb: "Fire" })) await change(rows, "made ready", { action: "fire" });
  };
  const cancel = async (rows) => {
    const text = `To be deleted, not delivered: ${these(rows)}. This cannot be undone.`;
    if (await confirm({ title: "Cancel messages", text, verb: "Delete" })) await change(rows, "deleted", { action: "cancel" });
  };
  const later = async (rows) => {
    const given = await confirm({ title: "Another time", text: `For ${these(rows)}${rows.length > 1 ? "" : `, due in ${duration(rows[0].due_in_ms)}`}.`, verb: "Reschedule", asks: "Seconds from now" });
    if (!given) return;
    const seconds = Number(given);
    const delay = Number.isFinite(seconds) && given !== true ? Math.round(seconds * 1000) : "";
    await change(rows, "rescheduled", { action: "reschedule", delay });
  };
  const buttons = (rows) => html`<${Button} label="Fire now …" onClick=${() => fire(rows)} why=${why} />
        <${Button} label="Reschedule …" onClick=${() => later(rows)} why=${why} />
        <${Danger} label="Cancel …" onClick=${() => cancel(rows)} why=${why} />`;
  const picked = found.filter((one) => chosen.has(keyOf(one)));
  const columns = [
    { title: "Due in", cell: (one) => html`<time title=${moment(one.due_ms)}>${duration(one.due_in_ms)}</time>` },
    { title: "Message", cell: (one) => html`<a href=${to(["find"], { id: one.id })}>${one.id}</a>` },
    ...(queue === undefined ? [OF_QUEUE] : []),
    { title: "Exchange", isWide: true, cell: (one) => html`<${ExchangeLink} vhost=${one.vhost} name=${one.exchange} />` },
    column("Routing key", "routing_key", code, WIDE),
    column("Attempts", "attempts", count),
    { title: "", cell: (one) => html`<span class="buttons">${buttons([one])}</span>` },
  ];
  return html`
    <${Waiting} view=${view} what="scheduled messages" />
    ${view.data && (found.length
      ? html`${!isOne && view.data.total > view.data.items.length && html`<p class="dim">The soonest ${several(view.data.items.length, "message")} of ${count(view.data.total)}.</p>`}
          <${Chosen} rows=${picked} what="message">${buttons(picked)}<//>
          <${Rows} rows=${found} columns=${columns} caption="Scheduled messages" keyOf=${keyOf} chosen=${why ? null : chosen} setChosen=${setChosen} />
          ${why && html`<p class="dim">Fire, reschedule, cancel: ${why}.</p>`}`
      : html`<p class="empty">Nothing is scheduled.</p>`)}
    ${isOne && view.data && (after > 0 || view.data.next !== null) && html`<div class="buttons">
      <span class="dim">${count(after + 1)} to ${count(after + found.length)} of ${count(view.data.total)}</span>
      <button disabled=${after === 0} onClick=${() => setAfter(Math.max(0, after - 100))}>Sooner</button>
      <button disabled=${view.data.next === null} onClick=${() => setAfter(view.data.next)}>Later</button></div>`}`;
}
