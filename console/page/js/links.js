// Links to the pages of objects.
import { html } from "./lib.js";
import { exchangeSegment } from "./api.js";
import { to } from "./route.js";

export const QueueLink = ({ vhost, name }) => html`<a class="name" href=${to(["queues", vhost, name])}>${name}</a>`;
export const ExchangeLink = ({ vhost, name }) =>
  html`<a class="name" href=${to(["exchanges", vhost, exchangeSegment(name)])}>${name || "(default)"}</a>`;
export const ConnectionLink = ({ name }) => html`<a class="name" href=${to(["connections", name])}>${name}</a>`;
export const ChannelLink = ({ name }) => html`<a class="name" href=${to(["channels", name])}>${name}</a>`;
export const UserLink = ({ name }) => html`<a class="name" href=${to(["users", name])}>${name}</a>`;
export const VhostLink = ({ name }) => html`<a class="name" href=${to(["vhosts", name])}>${name}</a>`;
