// Driver for rabbitmq-client: its channels, which are what its consumers and publishers are made of.
'use strict';

const fs = require('node:fs');
const { Connection } = require('rabbitmq-client');
const { Driver, Closed, camel, octets, properties, text } = require('./driver');

const CODES = {
  CONTENT_TOO_LARGE: 311, CONNECTION_FORCED: 320, INVALID_PATH: 402, ACCESS_REFUSED: 403, NOT_FOUND: 404,
  RESOURCE_LOCKED: 405, PRECONDITION_FAILED: 406, FRAME_ERROR: 501, SYNTAX_ERROR: 502, COMMAND_INVALID: 503,
  CHANNEL_ERROR: 504, UNEXPECTED_FRAME: 505, RESOURCE_ERROR: 506, NOT_ALLOWED: 530, NOT_IMPLEMENTED: 540, INTERNAL_ERROR: 541,
};
const LOST = ['CONN_CLOSE', 'ECONNRESET', 'EPIPE', 'SOCKET_TIMEOUT'];

/** A typed value as the client takes it: its own types, by the value. */
function native(value) {
  const [[kind, inner]] = Object.entries(value);
  if (kind === 'F') return table(inner);
  if (kind === 'A') return inner.map(native);
  return inner;
}

const table = (typed = {}) => Object.fromEntries(Object.entries(typed).map(([key, value]) => [key, native(value)]));

/** A value as the client gave it, for the answer. */
function plain(value) {
  if (Buffer.isBuffer(value)) return text(value);
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value === 'bigint') return Number(value);
  if (value instanceof Date) return { T: Math.round(value.getTime() / 1000) };
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, plain(inner)]));
}

function content(one) {
  const body = Buffer.isBuffer(one.body) ? one.body : Buffer.from(one.body);
  return { body: body.toString('base64'), properties: properties(one), headers: one.headers ? plain(one.headers) : null };
}

function message(one) {
  const { deliveryTag, redelivered, exchange, routingKey } = one;
  return { delivery_tag: deliveryTag, redelivered: Boolean(redelivered), exchange, routing_key: routingKey, ...content(one) };
}

/** Arguments of a method, named as the client names them. */
function params(request, ...names) {
  const said = { arguments: table(request.arguments) };
  for (const name of names) if (request[name] !== undefined) said[camel(name)] = request[name];
  return said;
}

class RabbitmqClient extends Driver {
  refusal(error) {
    if (!(error.code in CODES)) return null;
    const found = /^(\w*): (.*)$/s.exec(error.message);
    const scope = error.constructor.name === 'AMQPConnectionError' ? 'connection' : 'channel';
    return new Closed(scope, CODES[error.code], found ? found[2] : error.message);
  }

  /** What the client tells of by its events alone; `number` is null for a connection. */
  closed(name, number, error) {
    const refusal = this.refusal(error);
    if (refusal) {
      const { scope } = refusal.answer;
      this.happened('closed', name, scope === 'channel' ? number : null, refusal.answer);
    } else if (number === null && LOST.includes(error.code)) {
      this.happened('closed', name, null, { scope: 'lost', code: 0, text: String(error) });
    }
  }

  async connectionOpen(request) {
    const name = request.connection;
    const previous = this.connections.get(name);
    if (previous) previous.unsafeDestroy();
    const connection = new Connection({
      hostname: request.host,
      port: request.port,
      username: request.user,
      password: request.password,
      vhost: request.vhost,
      heartbeat: request.heartbeat ?? 0,
      ...(request.frame_max ? { frameMax: request.frame_max } : {}),
      retryLow: 200,
      connectionTimeout: 20000,
      ...(request.ca ? { tls: { ca: [fs.readFileSync(request.ca)], servername: 'localhost' } } : {}),
    });
    let refused;
    const opened = new Promise((resolve, reject) => {
      connection.once('connection', resolve);
      refused = reject;
    });
    connection.on('error', (error) => { refused(error); this.closed(name, null, error); });
    connection.on('connection.blocked', (reason) => this.happened('blocked', name, null, { reason }));
    connection.on('connection.unblocked', () => this.happened('unblocked', name, null));
    this.connections.set(name, connection);
    try {
      await opened;
    } catch (error) {
      connection.unsafeDestroy();
      throw error;
    }
  }

  async connectionClose(request) {
    // The client waits until those who have channels have closed them.
    const own = [...this.channels].filter(([place]) => place.startsWith(`${request.connection} `));
    await Promise.allSettled(own.map(([, channel]) => channel.close()));
    await this.connections.get(request.connection).close();
  }

  async channelOpen(request) {
    const { connection, channel: number } = request;
    const channel = await this.connections.get(connection).acquire({ emitErrorsFromChannel: true });
    channel.on('error', (error) => this.closed(connection, number, error));
    channel.on('basic.cancel', (tag) => this.happened('cancel', connection, number, { consumer_tag: tag }));
    channel.on('basic.return', (one) => this.happened('return', connection, number, {
      code: one.replyCode, text: one.replyText, exchange: one.exchange, routing_key: one.routingKey, ...content(one),
    }));
    this.channels.set(this.place(request), channel);
  }

  async channelClose(request) {
    await this.channel(request).close();
  }

  async confirmSelect(request) {
    await this.channel(request).confirmSelect();
    this.channel(request).published = 0;
  }

  async exchangeDeclare(request) {
    await this.channel(request).exchangeDeclare(params(request, 'exchange', 'type', 'passive', 'durable', 'auto_delete', 'internal'));
  }

  async exchangeDelete(request) {
    await this.channel(request).exchangeDelete(params(request, 'exchange', 'if_unused'));
  }

  async exchangeBind(request) {
    await this.channel(request).exchangeBind(params(request, 'destination', 'source', 'routing_key'));
  }

  async exchangeUnbind(request) {
    await this.channel(request).exchangeUnbind(params(request, 'destination', 'source', 'routing_key'));
  }

  async queueDeclare(request) {
    const ok = await this.channel(request).queueDeclare(params(request, 'queue', 'passive', 'durable', 'exclusive', 'auto_delete'));
    return { queue: ok.queue, message_count: ok.messageCount, consumer_count: ok.consumerCount };
  }

  async queueBind(request) {
    await this.channel(request).queueBind(params(request, 'queue', 'exchange', 'routing_key'));
  }

  async queueUnbind(request) {
    await this.channel(request).queueUnbind(params(request, 'queue', 'exchange', 'routing_key'));
  }

  async queuePurge(request) {
    return { message_count: (await this.channel(request).queuePurge(params(request, 'queue'))).messageCount };
  }

  async queueDelete(request) {
    const ok = await this.channel(request).queueDelete(params(request, 'queue', 'if_unused', 'if_empty'));
    return { message_count: ok.messageCount };
  }

  async basicQos(request) {
    await this.channel(request).basicQos(params(request, 'prefetch_size', 'prefetch_count', 'global'));
  }

  async basicConsume(request) {
    const { connection, channel: number } = request;
    const arrived = (one) => this.happened('delivery', connection, number, { consumer_tag: one.consumerTag, ...message(one) });
    const ok = await this.channel(request).basicConsume(params(request, 'queue', 'consumer_tag', 'no_ack', 'exclusive'), arrived);
    return { consumer_tag: ok.consumerTag };
  }

  async basicCancel(request) {
    await this.channel(request).basicCancel(params(request, 'consumer_tag'));
  }

  async basicPublish(request) {
    const channel = this.channel(request);
    const envelope = params(request, 'exchange', 'routing_key', 'mandatory', 'immediate');
    delete envelope.arguments;
    for (const [key, value] of Object.entries(request.properties || {})) envelope[camel(key)] = value;
    if (request.headers) envelope.headers = table(request.headers);
    const sent = channel.basicPublish(envelope, octets(request.body));
    if (channel.published === undefined) return void await sent;
    const seq = ++channel.published;
    const told = (ack) => this.happened('confirm', request.connection, request.channel, { seq, ack });
    sent.then(() => told(true), (error) => (error.code === 'NACK' ? told(false) : this.closed(request.connection, request.channel, error)));
  }

  async basicGet(request) {
    const one = await this.channel(request).basicGet(params(request, 'queue', 'no_ack'));
    return one ? { message_count: one.messageCount, ...message(one) } : { empty: true };
  }

  async basicAck(request) {
    this.channel(request).basicAck(params(request, 'delivery_tag', 'multiple'));
  }

  async basicNack(request) {
    this.channel(request).basicNack(params(request, 'delivery_tag', 'multiple', 'requeue'));
  }

  async basicRecover(request) {
    await this.channel(request).basicRecover(params(request, 'requeue'));
  }

  async txSelect(request) {
    await this.channel(request).txSelect();
  }

  async txCommit(request) {
    await this.channel(request).txCommit();
  }

  async txRollback(request) {
    await this.channel(request).txRollback();
  }

  async closeAll() {
    for (const connection of this.connections.values()) connection.unsafeDestroy();
  }
}

new RabbitmqClient('rabbitmq-client', {
  'basic.recover-async': 'no such call',
  'basic.reject': 'no such call; it has nack',
  'channel.flow': 'no such call',
  'connection.update-secret': 'no such call',
  recover: 'channels that are acquired do not come back',
  ...Object.fromEntries([...'BuiLfDxT'].map((letter) => [`type:${letter}`, 'not written'])),
}, ['L']).serve();
