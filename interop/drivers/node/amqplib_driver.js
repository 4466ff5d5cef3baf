// Driver for amqplib: its promise interface.
'use strict';

const fs = require('node:fs');
const amqp = require('amqplib');
const { Driver, Closed, camel, octets, properties, text } = require('./driver');

const REFUSED = /(\d{3}) \([\w-]+\) with message "(.*)"$/s;
const TYPED = { b: 'int8', B: 'uint8', s: 'int16', u: 'uint16', I: 'int32', i: 'uint32', l: 'int64', f: 'float', d: 'double', T: 'timestamp' };

/** A typed value as amqplib takes it. */
function native(value) {
  const [[kind, inner]] = Object.entries(value);
  if (kind === 'F') return table(inner);
  if (kind === 'A') return inner.map(native);
  if (kind === 'x') return octets(inner);
  if (kind === 'D') return { '!': 'decimal', value: { places: inner[0], digits: inner[1] } };
  return kind in TYPED ? { '!': TYPED[kind], value: inner } : inner;
}

const table = (typed = {}) => Object.fromEntries(Object.entries(typed).map(([key, value]) => [key, native(value)]));

/** A value as amqplib gave it, for the answer. */
function plain(value) {
  if (Buffer.isBuffer(value)) return text(value);
  if (Array.isArray(value)) return value.map(plain);
  if (value === null || typeof value !== 'object') return value;
  if (value['!'] === 'timestamp') return { T: value.value };
  if (value['!'] === 'decimal') return { D: [value.value.places, value.value.digits] };
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, plain(inner)]));
}

function content(message) {
  const { headers, ...others } = message.properties;
  return { body: message.content.toString('base64'), properties: properties(others), headers: headers ? plain(headers) : null };
}

function message(one) {
  const { deliveryTag, redelivered, exchange, routingKey } = one.fields;
  return { delivery_tag: deliveryTag, redelivered, exchange, routing_key: routingKey, ...content(one) };
}

const tagged = (request) => ({ fields: { deliveryTag: request.delivery_tag } });

class Amqplib extends Driver {
  refusal(error) {
    const found = REFUSED.exec(error.message || '');
    if (!found) return null;
    const connection = /^(Connection closed|Handshake terminated)/.test(error.message);
    return new Closed(connection ? 'connection' : 'channel', Number(found[1]), found[2]);
  }

  /** A close by the broker, or a line that broke. */
  closed(connection, channel, error) {
    const refusal = this.refusal(error);
    const answer = refusal ? refusal.answer : { scope: channel === null ? 'lost' : 'client', code: 0, text: String(error) };
    if (answer.scope !== 'client') this.happened('closed', connection, channel, { ...answer, scope: channel !== null ? 'channel' : answer.scope });
  }

  async connectionOpen(request) {
    const socket = { timeout: 20000 };
    if (request.unannounced) {
      socket.clientProperties = { capabilities: { publisher_confirms: true, 'basic.nack': true, consumer_cancel_notify: true } };
    }
    if (request.ca) Object.assign(socket, { ca: [fs.readFileSync(request.ca)], servername: 'localhost' });
    const connection = await amqp.connect({
      protocol: request.ca ? 'amqps' : 'amqp',
      hostname: request.host,
      port: request.port,
      username: request.user,
      password: request.password,
      vhost: request.vhost,
      heartbeat: request.heartbeat ?? 0,
      frameMax: request.frame_max ?? 0,
    }, socket);
    const name = request.connection;
    connection.on('error', (error) => this.closed(name, null, error));
    connection.on('close', (error) => {
      // What an operator or a shutdown closes is no 'error' to amqplib.
      if (error && !this.events.some((one) => one.event === 'closed' && one.connection === name)) this.closed(name, null, error);
    });
    connection.on('blocked', (reason) => this.happened('blocked', name, null, { reason }));
    connection.on('unblocked', () => this.happened('unblocked', name, null));
    this.connections.set(name, connection);
  }

  async connectionClose(request) {
    await this.connections.get(request.connection).close();
  }

  async connectionUpdateSecret(request) {
    await this.connections.get(request.connection).updateSecret(octets(Buffer.from(request.secret).toString('base64')), request.reason);
  }

  async channelOpen(request) {
    this.watch(request, await this.connections.get(request.connection).createChannel());
  }

  watch(request, channel) {
    const { connection, channel: number } = request;
    channel.on('error', (error) => this.closed(connection, number, error));
    channel.on('return', (one) => {
      const { replyCode, replyText, exchange, routingKey } = one.fields;
      this.happened('return', connection, number, { code: replyCode, text: replyText, exchange, routing_key: routingKey, ...content(one) });
    });
    this.channels.set(this.place(request), channel);
  }

  async channelClose(request) {
    await this.channel(request).close();
  }

  // amqplib has channels with confirms and such without: another takes the place of this one.
  async confirmSelect(request) {
    await this.channel(request).close();
    const channel = await this.connections.get(request.connection).createConfirmChannel();
    channel.published = 0;
    this.watch(request, channel);
  }

  async exchangeDeclare(request) {
    const channel = this.channel(request);
    if (request.passive) return void await channel.checkExchange(request.exchange);
    const { durable = false, internal = false, auto_delete: autoDelete = false } = request;
    await channel.assertExchange(request.exchange, request.type, { durable, internal, autoDelete, arguments: table(request.arguments) });
  }

  async exchangeDelete(request) {
    await this.channel(request).deleteExchange(request.exchange, { ifUnused: request.if_unused });
  }

  async exchangeBind(request) {
    await this.channel(request).bindExchange(request.destination, request.source, request.routing_key || '', table(request.arguments));
  }

  async exchangeUnbind(request) {
    await this.channel(request).unbindExchange(request.destination, request.source, request.routing_key || '', table(request.arguments));
  }

  async queueDeclare(request) {
    const channel = this.channel(request);
    const { durable = false, exclusive = false, auto_delete: autoDelete = false } = request;
    const options = { durable, exclusive, autoDelete, arguments: table(request.arguments) };
    const ok = await (request.passive ? channel.checkQueue(request.queue) : channel.assertQueue(request.queue, options));
    return { queue: ok.queue, message_count: ok.messageCount, consumer_count: ok.consumerCount };
  }

  async queueBind(request) {
    await this.channel(request).bindQueue(request.queue, request.exchange, request.routing_key || '', table(request.arguments));
  }

  async queueUnbind(request) {
    await this.channel(request).unbindQueue(request.queue, request.exchange, request.routing_key || '', table(request.arguments));
  }

  async queuePurge(request) {
    return { message_count: (await this.channel(request).purgeQueue(request.queue)).messageCount };
  }

  async queueDelete(request) {
    const flags = { ifUnused: request.if_unused, ifEmpty: request.if_empty };
    return { message_count: (await this.channel(request).deleteQueue(request.queue, flags)).messageCount };
  }

  async basicQos(request) {
    await this.channel(request).prefetch(request.prefetch_count || 0, request.global || false);
  }

  async basicConsume(request) {
    const { connection, channel: number } = request;
    const arrived = (one) => {
      if (one === null) this.happened('cancel', connection, number, { consumer_tag: request.consumer_tag || '' });
      else this.happened('delivery', connection, number, { consumer_tag: one.fields.consumerTag, ...message(one) });
    };
    const options = { consumerTag: request.consumer_tag, noAck: request.no_ack, exclusive: request.exclusive, arguments: table(request.arguments) };
    return { consumer_tag: (await this.channel(request).consume(request.queue, arrived, options)).consumerTag };
  }

  async basicCancel(request) {
    await this.channel(request).cancel(request.consumer_tag);
  }

  async basicPublish(request) {
    const channel = this.channel(request);
    const options = { mandatory: request.mandatory };
    for (const [key, value] of Object.entries(request.properties || {})) options[camel(key)] = value;
    if (request.headers) options.headers = table(request.headers);
    const confirmed = [];
    if (channel.published !== undefined) {
      const seq = ++channel.published;
      confirmed.push((error) => this.happened('confirm', request.connection, request.channel, { seq, ack: error === null }));
    }
    // False: its buffer, which has no end, is longer than it likes, since the socket takes nothing.
    return { is_taken: channel.publish(request.exchange, request.routing_key, octets(request.body), options, ...confirmed) };
  }

  async basicGet(request) {
    const one = await this.channel(request).get(request.queue, { noAck: request.no_ack });
    return one ? { message_count: one.fields.messageCount, ...message(one) } : { empty: true };
  }

  async basicAck(request) {
    this.channel(request).ack(tagged(request), request.multiple || false);
  }

  async basicNack(request) {
    this.channel(request).nack(tagged(request), request.multiple || false, request.requeue ?? true);
  }

  async basicReject(request) {
    this.channel(request).reject(tagged(request), request.requeue ?? true);
  }

  async basicRecover(request) {
    await this.channel(request).recover();
  }

  async closeAll() {
    await Promise.allSettled([...this.connections.values()].map((connection) => Promise.race([
      connection.close(), new Promise((resolve) => { setTimeout(resolve, 1000); })])));
  }
}

new Amqplib('amqplib', {
  'basic.recover-async': 'no such call',
  'property:cluster_id': 'no such argument',
  'basic.publish:immediate': 'no such argument',
  'basic.qos:prefetch_size': 'no such argument',
  'channel.flow': 'no such call',
  'tx.select': 'no transactions',
  'tx.commit': 'no transactions',
  'tx.rollback': 'no transactions',
  'scenario:settle-recover-without-requeue': 'recover always requeues',
  'scenario:connection-unknown-virtual-host': 'does not tell why the connection was refused',
  recover: 'connects again, but declares nothing again by itself',
  'type:L': 'not written',
}, ['L']).serve();
