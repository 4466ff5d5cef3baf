// A worker in Node that publishes one message and fails at every delivery. Arguments: URL, queue, its arguments as JSON.
const amqp = require("amqplib");

async function main() {
  const [url, queue, queueArguments] = process.argv.slice(2);
  const connection = await amqp.connect(url);
  const channel = await connection.createChannel();
  await channel.assertQueue(queue, { durable: true, arguments: JSON.parse(queueArguments) });
  await channel.consume(queue, (message) => message && channel.nack(message, false, true));
  channel.sendToQueue(queue, Buffer.from("again"), { persistent: true });
  process.stdin.on("data", () => {});
  process.stdin.on("end", async () => {
    await connection.close();
    process.exit(0);
  });
}

main();
