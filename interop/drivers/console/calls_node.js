// http-rabbitmq-manager and rabbitmq-stats: one JSON object a line for each call.
"use strict";
const { client: makeClient } = require("http-rabbitmq-manager");
const stats = require("rabbitmq-stats");

const host = process.env.TOOLS_HOST;
const port = Number(process.env.TOOLS_PORT);
const client = makeClient({ host, port, timeout: 30000, user: "guest", password: "guest" });
const manager = stats(process.env.TOOLS_URL, "guest", "guest");

function tell(line) {
  process.stdout.write(JSON.stringify(line) + "\n");
}

function only(...names) {
  const of = (one) => Object.fromEntries(names.map((name) => [name, one[name] === undefined ? null : one[name]]));
  return (answer) =>
    Array.isArray(answer) ? answer.map(of).sort((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1)) : of(answer);
}

async function check(name, call, facts = (answer) => answer) {
  try {
    tell({ check: name, facts: facts(await call()) });
  } catch (error) {
    tell({ check: name, failed: String(error && error.message ? error.message : JSON.stringify(error)).slice(0, 300) });
  }
}

function ask(method, body) {
  return new Promise((resolve, reject) => {
    const done = (error, answer) => (error ? reject(error) : resolve(answer === undefined ? null : answer));
    if (body === undefined) client[method](done);
    else client[method](body, done);
  });
}

const STATS = {
  getOverview: [[], (answer) => Object.keys(answer.object_totals).sort()],
  getVhosts: [[], only("name", "tracing")],
  getVhostQueues: [["/"], only("name", "durable", "type")],
  getQueue: [["/", "watched"], only("name", "durable", "arguments", "vhost")],
  getVhostExchanges: [["/"], only("name", "type")],
  getVhostBindings: [["/"], only("source", "destination", "routing_key", "properties_key")],
  getVhostQueueBindings: [["/", "watched"], only("source", "destination")],
  getVhostConnections: [["/"], only("user", "protocol", "state")],
  getConnections: [[], only("user", "vhost", "channels")],
  getChannels: [[], only("number", "confirm")],
  getNodes: [[], only("name", "type")],
  getUsers: [[], only("name", "tags")],
  getWhoAmI: [[]],
  getPermissions: [[]],
};

async function main() {
  for (const [method, [words, facts]] of Object.entries(STATS)) {
    if (typeof manager[method] !== "function") continue;
    await check(`rabbitmq-stats ${method}`, () => manager[method](...words), facts);
  }
  await check("overview", () => ask("overview"), (answer) => Object.keys(answer.queue_totals).filter((one) => !one.endsWith("_details")).sort());
  await check("getClusterName", () => ask("getClusterName"));
  await check("listNodes", () => ask("listNodes"), only("name", "running"));
  await check("createVhost", () => ask("createVhost", { vhost: "node" }));
  await check("listVhosts", () => ask("listVhosts", {}), only("name"));
  await check("createQueue", () => ask("createQueue", { vhost: "/", queue: "nodeq", auto_delete: false, durable: true, arguments: {} }));
  await check("getQueue", () => ask("getQueue", { vhost: "/", queue: "nodeq" }), only("name", "durable", "auto_delete", "arguments"));
  await check("createExchange", () => ask("createExchange", { vhost: "/", exchange: "nodex", type: "fanout", auto_delete: false, durable: true, internal: false, arguments: {} }));
  await check("getExchange", () => ask("getExchange", { vhost: "/", exchange: "nodex" }), only("name", "type", "durable"));
  await check("publishMessage", () => ask("publishMessage", { vhost: "/", exchange: "amq.default", properties: {}, routing_key: "nodeq", payload: "from node", payload_encoding: "string" }));
  await check("getMessages", () => ask("getMessages", { vhost: "/", queue: "nodeq", count: 5, ackmode: "ack_requeue_true", requeue: true, encoding: "auto", truncate: 50000 }));
  await check("getQueueBindings", () => ask("getQueueBindings", { vhost: "/", queue: "nodeq" }));
  await check("listQueues", () => ask("listQueues", {}), only("name", "vhost"));
  await check("listBindings", () => ask("listBindings", { vhost: "/" }), only("source", "destination", "routing_key"));
  await check("getBindingsForSource", () => ask("getBindingsForSource", { vhost: "/", exchange: "nodex" }));
  await check("purgeQueue", () => ask("purgeQueue", { vhost: "/", queue: "nodeq" }));
  await check("deleteQueue", () => ask("deleteQueue", { vhost: "/", queue: "nodeq" }));
  await check("deleteExchange", () => ask("deleteExchange", { vhost: "/", exchange: "nodex" }));
  await check("listConnections", () => ask("listConnections"), only("user", "state"));
  await check("deleteVhost", () => ask("deleteVhost", { vhost: "node" }));
}

main();
