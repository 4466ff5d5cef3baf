// Links to the pages of objects.
import { html } from "./lib.js";
import { exchangeSegment } from "./api.js";
import { to } from "./route.js";

export const QueueLink = ({ vhost, name }) => html`<a class="name" href=${to(["queues", vhost, name])}>${name}</a>`;
export const ExchangeLink = ({ vhost, name }) =>
  html`<a class="name" href=${to(["exchanges", vhost, exchangeSegment(name)])}>${name || "(default)"}</a>`;
/** Of a connection's or channel's name what differs: the client's address. */
const peerOf = (name) => name.replace(/ -> \S+/, "");
/** `label`: the name that the client gave; the broker's own stands small beside it. */
export const ConnectionLink = ({ name, label }) => html`<a class="name" href=${to(["connections", name])}>${label || name}</a>${label && html` <small class="name" title=${name}>${peerOf(name)}</small>`}`;
/** The client of a channel, and its number there. */
export const ClientOf = ({ details }) => html`<a class="name" href=${to(["channels", details.name])}>${details.user_provided_name || details.name}</a>${details.user_provided_name && html` <small class="name" title=${details.name}>${peerOf(details.name)}</small>`}`;
export const ChannelLink = ({ name, label = name }) => html`<a class="name" href=${to(["channels", name])}>${label}</a>`;
/** What has a limit. An address leads to the queues whose names have it. */
export function Limited({ text }) {
  const [, name] = /^address '(.+)' in vhost/.exec(text) || [];
  return name ? html`<a class="name" href=${to(["queues"], { name })}>${text}</a>` : html`<b class="name">${text}</b>`;
}
export const UserLink = ({ name }) => html`<a class="name" href=${to(["users", name])}>${name}</a>`;
export const VhostLink = ({ name }) => html`<a class="name" href=${to(["vhosts", name])}>${name}</a>`;

/** Columns of lists whose rows name a queue, or a connection. */
export const OF_QUEUE = { title: "Queue", cell: (one) => html`<${QueueLink} vhost=${one.vhost} name=${one.queue} />` };
export const ofClient = (title) => ({ title, cell: (one) => html`<${ConnectionLink} name=${one.connection} label=${one.connection_name} />` });
