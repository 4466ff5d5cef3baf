// A publisher by amqplib: QUEUE PORT... It prints the number of each message that was confirmed, until it is ended.
const amqplib = require('amqplib');

const PAUSE_MS = 20; // between two messages and between two tries
const PATIENCE_MS = 20000; // for a connection, and for a confirm
const [queue, ...ports] = process.argv.slice(2);
const pause = () => new Promise((done) => setTimeout(done, PAUSE_MS));
let number = 0;

// Publish through one node until that fails.
async function publish(port) {
  const connection = await amqplib.connect(`amqp://guest:guest@127.0.0.1:${port}/`, { timeout: PATIENCE_MS });
  const lost = new Promise((_, fail) => {
    connection.on('error', fail);
    connection.on('close', fail);
  });
  lost.catch(() => {});
  try {
    const channel = await connection.createConfirmChannel();
    channel.on('error', () => {});
    for (;;) {
      const sent = number++;
      const confirmed = new Promise((done, fail) => {
        channel.publish('', queue, Buffer.from(`${sent}`), { persistent: true }, (err) => (err ? fail(err) : done()));
      });
      await Promise.race([confirmed, lost]);
      console.log(sent);
      await pause();
    }
  } finally {
    await connection.close().catch(() => {});
  }
}

(async () => {
  for (let turn = 0; ; turn++) {
    await publish(ports[turn % ports.length]).catch(() => {});
    await pause();
  }
})();
