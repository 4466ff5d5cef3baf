// Publishing one message, and showing messages.
import { html, useState } from "./lib.js";
import { act, exchangeSegment, path } from "./api.js";
import { asIs, column, named, yesNo } from "./columns.js";
import { bytes, count, duration, moment, parsed } from "./format.js";
import { CommandForm } from "./form.js";
import { ConnectionLink, QueueLink } from "./links.js";
import { useMay } from "./may.js";
import { to } from "./route.js";
import { Rows } from "./list.js";
import { Facts, Table } from "./parts.js";
import { note } from "./state.js";

/** `routingKey`: fixed on a queue's page. */
export function Publish({ vhost, exchange, routingKey }) {
  const why = useMay(vhost, "exchange", exchange)("write");
  const own = {
    payload: { type: "textarea", rows: 4 },
    persistent: { type: "checkbox", value: true },
    headers: { type: "json" },
  };
  const [where, setWhere] = useState(null);
  const publish = async (values, isDry) => {
    const body = {
      routing_key: routingKey ?? values.routing_key,
      payload: values.payload,
      payload_encoding: values.payload_encoding,
      properties: { delivery_mode: values.persistent ? 2 : 1, ...values.properties, headers: values.headers },
    };
    if (isDry) {
      const dry = await act("", "POST", path("leveret", "route", vhost), { body: { ...body, exchange } });
      if (dry) setWhere(dry.value);
      return false;
    }
    const done = await act("", "POST", path("exchanges", vhost, exchangeSegment(exchange), "publish"), { body });
    if (done) note(done.value.routed ? "Published; a queue has it." : "Published, but no queue got it.", !done.value.routed);
    return false;
  };
  return html`<${CommandForm} of="publish" only=${`${routingKey === undefined ? "routing_key " : ""}payload payload_encoding persistent headers properties`} own=${own} name="Publish" verb="Publish" also="Where would it go?" onSubmit=${publish} why=${why} />
    <div aria-live="polite">${where && html`<${Where} found=${where} vhost=${vhost} />`}</div>`;
}

/** What a dry run says: nothing was published. */
function Where({ found, vhost }) {
  const columns = [
    { title: "Queue", cell: (one) => html`<${QueueLink} vhost=${vhost} name=${one.queue} />` },
    column("What it does", "outcome", asIs),
    { title: "Reached", cell: (one) => one.bindings.map((by) => `${by.source} by ${by.routing_key || "(no key)"}`).join("; ") || one.how },
    { title: "Lives there", cell: (one) => (one.ttl_ms === null ? "for ever" : duration(one.ttl_ms)) },
  ];
  return html`<p><b>${found.fate}</b>${found.blocked && `; publishers are blocked now: ${found.blocked}`}</p>
    <${Facts} rows=${[
      ["Address", found.address],
      ["Waits first", found.delay_ms === null ? "" : duration(found.delay_ms)],
      ["Expires after", found.expiration_ms === null ? "" : duration(found.expiration_ms)],
      ["Diverted to", found.diverts.map((one) => one.to.join(", ")).join("; ")],
    ]} />
    ${found.queues.length > 0 && html`<${Rows} rows=${found.queues} columns=${columns} caption="Queues that would get it" by="queue" />`}
    ${found.others.length > 0 && html`<p>Not by ${count(found.others_total)} other${found.others_total > 1 ? "s" : ""}:</p>
      <ul>${found.others.map((one, index) => html`<li key=${index}>${named(one.destination)}: ${one.why}</li>`)}</ul>`}`;
}

function hex(text) {
  const octets = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  const lines = [];
  for (let at = 0; at < octets.length; at += 16) {
    const line = octets.slice(at, at + 16);
    const digits = [...line].map((one) => one.toString(16).padStart(2, "0")).join(" ");
    const letters = [...line].map((one) => (one >= 32 && one < 127 ? String.fromCharCode(one) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${digits.padEnd(47)}  ${letters}`);
  }
  return lines.join("\n");
}

function pretty(text) {
  const value = parsed(text);
  return value && typeof value === "object" ? JSON.stringify(value, null, 2) : null;
}

function Body({ message }) {
  const isText = message.payload_encoding === "string";
  const json = isText ? pretty(message.payload) : null;
  const ways = isText ? [["text", message.payload], ...(json ? [["JSON", json]] : [])] : [["hex", hex(message.payload)], ["base64", message.payload]];
  const [way, setWay] = useState(json ? "JSON" : ways[0][0]);
  const [, shown] = ways.find(([name]) => name === way) || ways[0];
  return html`<div class="body-of">
    ${ways.length > 1 && html`<div class="ways" role="group" aria-label="Show the body as">
      ${ways.map(([name]) => html`<button key=${name} aria-pressed=${name === way ? "true" : "false"} onClick=${() => setWay(name)}>${name}</button>`)}
    </div>`}
    <pre tabindex="0" aria-label="Body">${shown}</pre>
  </div>`;
}

/** Where a message died, the last death first. */
function Deaths({ deaths }) {
  return html`<ol class="deaths">${deaths.map((one, index) => html`<li key=${index}>
    ${one.reason} in <b class="name">${one.queue}</b>, ${count(one.count)} × ; came from ${one.exchange || "the default exchange"} with ${(one["routing-keys"] || []).join(", ")}
    ${typeof one.time === "number" && html` <small>${moment(one.time * 1000)}</small>`}</li>`)}</ol>`;
}

/** The consumer of an unacknowledged message, on its channel's page. */
const HolderLink = ({ holder }) => html`<a class="name" href=${to(["channels", `${holder.connection} (${holder.channel})`])}>${holder.consumer || "a get"}</a>`;

export function Messages({ messages }) {
  return html`<ol class="messages">
    ${messages.map((message, index) => {
      const { headers, ...properties } = message.properties || {};
      const { "x-death": deaths, ...others } = headers || {};
      return html`<li key=${message.position ?? index} class="message">
        <${Facts} rows=${[
          ["Position", message.position],
          ["Exchange", message.exchange === undefined ? "" : message.exchange || "(default)"],
          ["Routing key", message.routing_key],
          ["Size", bytes(message.payload_bytes)],
          ["Redelivered", message.redelivered === undefined ? "" : yesNo(message.redelivered)],
          ["Attempts", message.attempts],
          ["Held by", message.holder && html`<${ConnectionLink} name=${message.holder.connection} label=${message.holder.connection_name} />, consumer <${HolderLink} holder=${message.holder} />`],
          ["Left in the queue", message.message_count === undefined ? "" : count(message.message_count)],
          ["Properties", Object.keys(properties).length ? html`<${Table} value=${properties} />` : ""],
          ["Headers", Object.keys(others).length ? html`<${Table} value=${others} />` : ""],
          ["Died", Array.isArray(deaths) ? html`<${Deaths} deaths=${deaths} />` : ""],
        ]} />
        <${Body} message=${message} />
      </li>`;
    })}
  </ol>`;
}
