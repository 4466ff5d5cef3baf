// The eight questions to mock-amqplib, by amqplib's API; prints the answers as JSON.
const mock = require("mock-amqplib");
const { version } = require("mock-amqplib/package.json");

class No extends Error {}
const TTL_MS = 300, SECONDS_MAX = 2;
const require_ = (fact, otherwise) => { if (!fact) throw new No(otherwise); };
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const get = async (channel, queue, options) => {
  for (const deadline = Date.now() + SECONDS_MAX * 1000; ;) {
    const message = await channel.get(queue, options);
    if (message || Date.now() > deadline) return message || null;
    await pause(10);
  }
};

const QUESTIONS = {
  "publish, get": async (channel, connection, q) => {
    await channel.assertQueue(q);
    await channel.sendToQueue(q, Buffer.from("body"), { headers: { n: 1 } });
    const message = await get(channel, q, { noAck: true });
    require_(message && String(message.content) === "body" && message.properties.headers.n === 1, "another message");
  },
  "topic exchanges": async (channel, connection, q) => {
    await channel.assertExchange("topics", "topic");
    for (const [queue, pattern] of [["one", "a.*"], ["all", "#"]]) {
      await channel.assertQueue(queue);
      await channel.bindQueue(queue, "topics", pattern);
    }
    await channel.publish("topics", "a.b", Buffer.from("1"));
    await channel.publish("topics", "a.b.c", Buffer.from("2"));
    const all = [await get(channel, "all"), await get(channel, "all")].map((one) => one && String(one.content));
    require_(all.join() === "1,2", "no `#`");
    const first = await get(channel, "one");
    require_(first && String(first.content) === "1", "no `*`");
    require_(!(await channel.get("one")), "`*` takes two words");
  },
  "unroutable messages come back": async (channel, connection, q) => {
    let returned = 0;
    channel.on("return", () => { returned += 1; });
    await channel.assertExchange("empty", "direct");
    await channel.publish("empty", "nobody", Buffer.from("lost"), { mandatory: true });
    await pause(100);
    require_(returned === 1, "no return");
  },
  "TTL and dead letters, `x-death`": async (channel, connection, q) => {
    await channel.assertQueue("dead");
    await channel.assertQueue("short", {
      messageTtl: TTL_MS, deadLetterExchange: "", deadLetterRoutingKey: "dead",
      arguments: { "x-message-ttl": TTL_MS, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead" },
    });
    await channel.sendToQueue("short", Buffer.from("old"), {});
    const message = await get(channel, "dead");
    if (!message) {
      throw new No((await channel.get("short")) ? "neither: it stays where it was" : "not dead-lettered");
    }
    require_(message.properties.headers && message.properties.headers["x-death"], "no `x-death`");
  },
  "a nacked message is marked redelivered": async (channel, connection, q) => {
    await channel.assertQueue(q);
    await channel.sendToQueue(q, Buffer.from("again"), {});
    const first = await get(channel, q);
    require_(!first.fields.redelivered, "marked at first");
    await channel.nack(first, false, true);
    const second = await get(channel, q);
    require_(second, "gone");
    require_(second.fields.redelivered, "not marked");
  },
  "prefetch holds back": async (channel, connection, q) => {
    await channel.assertQueue(q);
    for (let number = 0; number < 5; number++) await channel.sendToQueue(q, Buffer.from(String(number)), {});
    await channel.prefetch(2);
    let got = 0;
    await channel.consume(q, () => { got += 1; });
    await pause(300);
    require_(got === 2, `${got} of 5 with a prefetch of 2`);
  },
  "declared again with other arguments: 406": async (channel, connection, q) => {
    await channel.assertQueue(q, { maxLength: 5 });
    try {
      await channel.assertQueue(q, { maxLength: 6 });
    } catch (error) {
      require_(error.code === 406, String(error.message));
      return;
    }
    throw new No("taken");
  },
  "a consumer that is gone gives back": async (channel, connection, q) => {
    await channel.assertQueue(q);
    await channel.sendToQueue(q, Buffer.from("held"), {});
    const other = await connection.createChannel();
    const held = await get(other, q);
    require_(held, "not delivered");
    await other.close();
    const back = await get(channel, q);
    require_(back, "gone");
    require_(back.fields.redelivered, "back, not marked");
  },
};

const main = async () => {
  const since = performance.now();
  await (await mock.connect("amqp://localhost")).createChannel();
  const ready = (performance.now() - since) / 1000;
  const said = {};
  for (const [name, question] of Object.entries(QUESTIONS)) {
    try {
      const connection = await mock.connect("amqp://localhost");
      await question(await connection.createChannel(), connection, `q.${name}`);
      said[name] = "yes";
    } catch (error) {
      said[name] = error instanceof No ? error.message : `refused: ${error.message}`;
    }
  }
  console.log(JSON.stringify({ version, ready, said }));
};
main();
