// What a test in Node does; prints "ok" at the end.
import assert from "node:assert/strict";
import { NotSo, startBroker } from "./leveret.mjs";

const broker = await startBroker();
const shop = await broker.newVhost();
assert.match(shop.url, /^amqp:\/\/guest:guest@127\.0\.0\.1:\d+\/test-\d+$/);
const injected = shop.call("inject", { exchange: "", routing_key: "orders", json: { id: 7, total: 9 }, vhost: shop.vhost });
await assert.rejects(injected, /no queue 'orders'/); // it was published all the same
const [order] = await shop.published();
assert.equal(order.routing_key, "orders");
await shop.assertPublished({ routing_key: "orders", body: { $partial: { id: 7 } } });
await shop.assertNotPublished({ routing_key: "invoices" });
await assert.rejects(shop.assertPublished({ body: { id: 8 } }), NotSo);
await assert.rejects(shop.assertQueue("orders"), (error) => error instanceof NotSo && /no queue 'orders'/.test(error.message));
await assert.rejects(shop.call("asert_queue"), /did you mean 'assert_queue'/);
const before = await broker.call("clock");
await broker.advance({ hours: 2 });
assert.equal((await broker.call("clock")).elapsed - before.elapsed, 7200);
const stop = await shop.fault("block");
assert.equal((await broker.call("faults")).length, 1);
await stop();
await shop.settled();
assert.deepEqual((await shop.history("published")).map((event) => event.kind), ["published"]);
await shop.reset();
assert.deepEqual(await shop.published(), []);
await shop.close();
await broker.close();
await assert.rejects(broker.advance({ days: 1 }), /no test server answers at http:/);
await assert.rejects(startBroker({ program: "./no-such-leveret" }), /cannot start .*set LEVERET to its path/);
console.log("ok");
