// What the drivers of Node's clients share: operations as lines of JSON on stdin, observations on stdout (../README.md).
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const readline = require('node:readline');

const PROPERTIES = ['content_type', 'content_encoding', 'delivery_mode', 'priority', 'correlation_id', 'reply_to',
  'expiration', 'message_id', 'timestamp', 'type', 'user_id', 'app_id', 'cluster_id'];
const LATE_MS = 1500; // what the reason of a refusal may take after the call has failed

/** The broker closed a channel or connection (scope: channel, connection), or it broke off (lost). */
class Closed extends Error {
  constructor(scope, code = 0, text = '') {
    super(`${scope} ${code} ${text}`);
    this.answer = { scope, code, text };
  }
}

const camel = (name) => name.replace(/_(.)/g, (_, letter) => letter.toUpperCase());
const octets = (base64) => Buffer.from(base64 || '', 'base64');
const isText = (buffer) => Buffer.from(buffer.toString('utf8'), 'utf8').equals(buffer);

class Driver {
  /** `lacks`: operation, operation:argument, type:LETTER, event:NAME, recover or scenario:NAME -> why. */
  constructor(client, lacks, readsNot = []) {
    this.client = client;
    this.lacks = lacks;
    this.readsNot = readsNot;
    this.connections = new Map();
    this.channels = new Map();
    this.events = [];
    this.waiting = null;
  }

  place(request) {
    return `${request.connection} ${request.channel}`;
  }

  channel(request) {
    const channel = this.channels.get(this.place(request));
    if (!channel) throw new Error('no such channel');
    return channel;
  }

  /** Note what came unasked; whoever waits looks again. */
  happened(event, connection, channel, what = {}) {
    this.events.push({ event, connection, channel, ...what });
    if (this.waiting) this.waiting();
  }

  /** Until `look` finds something or the time is over. */
  async until(look, milliseconds) {
    const deadline = Date.now() + milliseconds;
    for (;;) {
      const found = look();
      const left = deadline - Date.now();
      if (found || left <= 0) return found;
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, left);
        this.waiting = () => { clearTimeout(timer); resolve(); };
      });
      this.waiting = null;
    }
  }

  async wait(request) {
    const matching = () => this.events.filter((one) => one.event === request.event
      && one.connection === request.connection && (one.channel === null || one.channel === request.channel))
      .slice(0, request.count);
    await this.until(() => matching().length >= request.count, request.seconds * 1000);
    const events = matching();
    this.events = this.events.filter((one) => !events.includes(one));
    return { events };
  }

  /** What a failed call is answered with: the close that explains it, which may be told a little later. */
  async explained(request, error) {
    if (error instanceof Closed) return error.answer;
    const own = this.refusal && this.refusal(error);
    if (own) return own.answer;
    const close = () => this.events.find((one) => one.event === 'closed' && one.connection === request.connection
      && (one.channel === null || one.channel === request.channel));
    const found = await this.until(close, LATE_MS);
    if (found) return { scope: found.scope, code: found.code, text: found.text };
    return { scope: 'client', code: 0, text: String(error) };
  }

  async reset() {
    await this.closeAll();
    this.connections.clear();
    this.channels.clear();
    this.events = [];
  }

  async serve() {
    const { version } = JSON.parse(fs.readFileSync(path.join(__dirname, 'node_modules', this.client, 'package.json')));
    const tell = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
    process.on('uncaughtException', (error) => process.stderr.write(`${error.stack}\n`));
    process.on('unhandledRejection', (error) => process.stderr.write(`${error}\n`));
    tell({ client: this.client, version, language: `Node ${process.versions.node}`, lacks: this.lacks, reads_not: this.readsNot });
    for await (const line of readline.createInterface({ input: process.stdin })) {
      const request = JSON.parse(line);
      try {
        if (request.do === 'connection.open') this.events = this.events.filter((one) => one.connection !== request.connection);
        const operation = this[camel(request.do.replace(/[.-]/g, '_'))];
        tell({ id: request.id, ok: (await operation.call(this, request)) || {} });
      } catch (error) {
        tell({ id: request.id, error: await this.explained(request, error) });
      }
    }
    process.exit(0);
  }
}

/** The properties that are there, named as in the answer; `from` gives one by its name in camel case. */
function properties(from) {
  const said = {};
  for (const name of PROPERTIES) {
    const value = from[camel(name)];
    if (value !== undefined && value !== null) said[name] = value;
  }
  return said;
}

/** Octets as they are answered within tables. */
const text = (buffer) => (isText(buffer) ? buffer.toString('utf8') : { x: buffer.toString('base64') });

module.exports = { Driver, Closed, camel, octets, properties, text };
