# Driver for bunny: operations as lines of JSON on stdin, observations on stdout (../README.md).
require 'base64'
require 'bigdecimal'
require 'bunny'
require 'json'
require 'logger'
require 'set'

LATE = 1.5 # what the reason of a refusal may take after the call has failed
PROPERTIES = %w[content_type content_encoding delivery_mode priority correlation_id reply_to
                expiration message_id timestamp type user_id app_id cluster_id].freeze
LACKS = {
  'basic.recover-async' => 'no such call',
  'scenario:settle-recover-without-requeue' => 'does not know reply code 540',
  'basic.publish:immediate' => 'no such argument',
  'basic.qos:prefetch_size' => 'fixed to 0',
  'connection.open=text' => 'says it in its own words',
  'scenario:connection-unknown-virtual-host' => 'does not tell why the connection was refused',
  'scenario:consume-tag-used-twice' => 'takes the close of the connection for an empty frame'
}.merge(%w[b B s u i L f D x V].to_h { |letter| ["type:#{letter}", 'not written'] }).freeze

# The broker closed a channel or connection (scope: channel, connection), or it broke off (lost).
class Closed < StandardError
  attr_reader :answer

  def initialize(scope, code, text)
    super(text)
    @answer = { scope: scope, code: code, text: text }
  end
end

# Where a connection of bunny raises what happens to it.
class Handler
  def initialize(&told)
    @told = told
  end

  def raise(*errors)
    @told.call(errors.last)
  end
end

class Driver
  def initialize
    @connections = {}
    @channels = {}
    @events = []
    @told = {}.compare_by_identity
    @lock = Mutex.new
    @changed = ConditionVariable.new
  end

  def serve
    $stdout.sync = true
    puts({ client: 'bunny', version: Bunny::VERSION, language: "Ruby #{RUBY_VERSION}", lacks: LACKS, reads_not: %w[B I u i L] }.to_json)
    $stdin.each_line do |line|
      request = JSON.parse(line)
      puts(answer(request).to_json)
    end
    exit!(0)
  end

  def answer(request)
    result = send(request['do'].tr('.-', '__'), request)
    { id: request['id'], ok: result.is_a?(Hash) ? result : {} }
  rescue StandardError, Timeout::Error => e
    { id: request['id'], error: explained(request, e) }
  end

  def happened(event, connection, channel, what = {})
    @lock.synchronize do
      @events << { event: event, connection: connection, channel: channel, **what }
      @changed.broadcast
    end
  end

  # The first `count` events of a kind for a channel or its connection; the lock is held.
  def matching(request, event, count, seconds)
    deadline = now + seconds
    loop do
      note_closes
      found = @events.select do |one|
        one[:event] == event && one[:connection] == request['connection'] && [nil, request['channel']].include?(one[:channel])
      end.first(count)
      left = deadline - now
      return found if found.size >= count || left <= 0

      @changed.wait(@lock, [left, 0.05].min)
    end
  end

  # Bunny keeps why a channel was closed until the next call, and tells it of itself for acknowledgements alone.
  def note_closes
    @channels.each do |(connection, number), channel|
      error = channel.instance_variable_get(:@last_channel_error)
      next unless error && !error.equal?(@told[channel])

      @told[channel] = error
      @events << { event: 'closed', connection: connection, channel: number, **reason(error) }
    end
  end

  def now
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end

  def wait(request)
    @lock.synchronize do
      found = matching(request, request['event'], request['count'], request['seconds'])
      @events.reject! { |one| found.any? { |taken| taken.equal?(one) } }
      { events: found }
    end
  end

  # What a failed call is answered with: the close that explains it, which may be told a little later.
  def explained(request, error)
    own = reason(error)
    return own if own

    @lock.synchronize do
      found = matching(request, 'closed', 1, LATE).first
      return found.slice(:scope, :code, :text) if found
    end
    { scope: 'client', code: 0, text: "#{error.class}: #{error.message}" }
  end

  def reason(error)
    case error
    when Closed then error.answer
    when Bunny::AuthenticationFailureError then { scope: 'connection', code: 403, text: error.message }
    when Bunny::ChannelLevelException
      { scope: 'channel', code: error.channel_close.reply_code, text: error.channel_close.reply_text }
    when Bunny::ConnectionLevelException
      close = error.connection_close
      close && { scope: 'connection', code: close.reply_code, text: close.reply_text }
    end
  end

  def reset(_request)
    @connections.each_value do |connection|
      connection.instance_variable_set(:@automatically_recover, false)
      Timeout.timeout(2) { connection.close }
    rescue StandardError, Timeout::Error
      nil
    end
    @connections.clear
    @channels.clear
    @lock.synchronize { @events.clear }
  end

  def connection_open(request)
    name = request['connection']
    @lock.synchronize { @events.reject! { |one| one[:connection] == name } }
    tls = request.key?('ca') ? { tls: true, tls_ca_certificates: [request['ca']], verify_peer: true } : {}
    frames = request.key?('frame_max') ? { frame_max: request['frame_max'] } : {}
    handler = Handler.new { |error| lost(name, error) }
    connection = Bunny.new(
      host: request['host'], port: request['port'], user: request['user'], pass: request['password'], vhost: request['vhost'],
      heartbeat: request['heartbeat'] || 0, automatically_recover: request['recover'] || false, network_recovery_interval: 0.2,
      recover_from_connection_close: request['recover'] || false, session_error_handler: handler, continuation_timeout: 5_000,
      logger: Logger.new($stderr, level: Logger::FATAL), **tls, **frames
    )
    connection.start
    connection.on_blocked { |method| happened('blocked', name, nil, reason: method.reason) }
    connection.on_unblocked { happened('unblocked', name, nil) }
    @connections[name] = connection
    nil
  end

  def lost(name, error)
    answer = reason(error) || { scope: 'lost', code: 0, text: error.to_s }
    happened('closed', name, nil, **answer) unless answer[:scope] == 'channel'
  end

  def connection_close(request)
    @connections[request['connection']].close
  end

  def connection_update_secret(request)
    @connections[request['connection']].update_secret(request['secret'], request['reason'])
  end

  def channel_open(request)
    name, number = request.values_at('connection', 'channel')
    channel = @connections[name].create_channel
    channel.on_error do |_, close|
      happened('closed', name, number, scope: 'channel', code: close.reply_code, text: close.reply_text)
    end
    @channels[[name, number]] = channel
    nil
  end

  def channel(request)
    @channels.fetch(request.values_at('connection', 'channel'))
  end

  def channel_close(request)
    channel(request).close
  end

  def channel_flow(request)
    channel(request).channel_flow(request['active'])
    { active: request['active'] }
  end

  def exchange_declare(request)
    options = { passive: request['passive'], durable: request['durable'], auto_delete: request['auto_delete'],
                internal: request['internal'], arguments: table(request['arguments']) }
    channel(request).exchange_declare(request['exchange'], request['type'] || 'direct', options)
  end

  def exchange_delete(request)
    channel(request).exchange_delete(request['exchange'], if_unused: request['if_unused'])
  end

  def exchange_bind(request)
    channel(request).exchange_bind(request['source'], request['destination'], binding_of(request))
  end

  def exchange_unbind(request)
    channel(request).exchange_unbind(request['source'], request['destination'], binding_of(request))
  end

  def binding_of(request)
    { routing_key: request['routing_key'] || '', arguments: table(request['arguments']) }
  end

  def queue_declare(request)
    options = { passive: request['passive'], durable: request['durable'], exclusive: request['exclusive'],
                auto_delete: request['auto_delete'], arguments: table(request['arguments']) }
    # Only what is declared by its queue objects is declared again by its recovery.
    recovers = @connections[request['connection']].automatically_recover? && !request['passive']
    channel(request).queue(request['queue'], options) if recovers
    ok = channel(request).queue_declare(request['queue'], options)
    { queue: ok.queue, message_count: ok.message_count, consumer_count: ok.consumer_count }
  end

  def queue_bind(request)
    channel(request).queue_bind(request['queue'], request['exchange'], binding_of(request))
  end

  def queue_unbind(request)
    channel(request).queue_unbind(request['queue'], request['exchange'], binding_of(request))
  end

  def queue_purge(request)
    { message_count: channel(request).queue_purge(request['queue']).message_count }
  end

  def queue_delete(request)
    ok = channel(request).queue_delete(request['queue'], if_unused: request['if_unused'], if_empty: request['if_empty'])
    { message_count: ok.message_count }
  end

  def basic_qos(request)
    channel(request).basic_qos(request['prefetch_count'] || 0, request['global'] || false)
  end

  def basic_consume(request)
    name, number = request.values_at('connection', 'channel')
    tag = request['consumer_tag'] || channel(request).generate_consumer_tag # as Queue#subscribe does
    consumer = Bunny::Consumer.new(channel(request), request['queue'], tag, request['no_ack'] || false,
                                   request['exclusive'] || false, table(request['arguments']))
    consumer.on_delivery do |info, properties, body|
      happened('delivery', name, number, consumer_tag: info.consumer_tag, **message(info, properties, body))
    end
    consumer.on_cancellation { |cancel| happened('cancel', name, number, consumer_tag: cancel.consumer_tag) }
    { consumer_tag: channel(request).basic_consume_with(consumer).consumer_tag }
  end

  def basic_cancel(request)
    channel(request).basic_cancel(request['consumer_tag'])
  end

  def basic_publish(request)
    own = channel(request)
    heed_returns(request, own) if request['mandatory']
    options = (request['properties'] || {}).to_h { |key, value| [key.to_sym, value] }
    options[:persistent] = options.delete(:delivery_mode) == 2
    options[:headers] = table(request['headers']) if request.key?('headers')
    options[:mandatory] = request['mandatory'] || false
    own.basic_publish(Base64.decode64(request['body'] || ''), request['exchange'], request['routing_key'], options)
  end

  # Bunny hands what is returned to the object of its exchange.
  def heed_returns(request, own)
    name, number = request.values_at('connection', 'channel')
    exchange = Bunny::Exchange.new(own, :direct, request['exchange'], no_declare: true)
    exchange.on_return do |info, properties, body|
      happened('return', name, number, code: info.reply_code, text: info.reply_text, exchange: info.exchange,
                                       routing_key: info.routing_key, **content(properties, body))
    end
    own.register_exchange(exchange)
  end

  def basic_get(request)
    info, properties, body = channel(request).basic_get(request['queue'], manual_ack: !request['no_ack'])
    return { empty: true } unless info

    { message_count: info.message_count, **message(info, properties, body) }
  end

  def basic_ack(request)
    channel(request).basic_ack(request['delivery_tag'], request['multiple'] || false)
  end

  def basic_nack(request)
    channel(request).basic_nack(request['delivery_tag'], request['multiple'] || false, request.fetch('requeue', true))
  end

  def basic_reject(request)
    channel(request).basic_reject(request['delivery_tag'], request.fetch('requeue', true))
  end

  def basic_recover(request)
    channel(request).basic_recover(request.fetch('requeue', true))
  end


  def confirm_select(request)
    name, number = request.values_at('connection', 'channel')
    told = Set.new
    channel(request).confirm_select(lambda do |tag, multiple, nack|
      ((multiple ? 1 : tag)..tag).each { |seq| happened('confirm', name, number, seq: seq, ack: !nack) if told.add?(seq) }
    end)
  end

  def tx_select(request)
    channel(request).tx_select
  end

  def tx_commit(request)
    channel(request).tx_commit
  end

  def tx_rollback(request)
    channel(request).tx_rollback
  end

  def message(info, properties, body)
    { delivery_tag: info.delivery_tag.to_i, redelivered: info.redelivered, exchange: info.exchange,
      routing_key: info.routing_key, **content(properties, body) }
  end

  def content(properties, body)
    said = PROPERTIES.to_h { |name| [name, properties[name.to_sym]] }.compact
    said['timestamp'] = said['timestamp'].to_i if said.key?('timestamp')
    headers = properties[:headers]
    { body: Base64.strict_encode64(body || ''), properties: said, headers: headers && plain(headers) }
  end

  # A typed value as bunny takes it.
  def native(value)
    kind, inner = value.first
    case kind
    when 'F' then table(inner)
    when 'A' then inner.map { |one| native(one) }
    when 'T' then Time.at(inner)
    when 'V' then nil
    else inner
    end
  end

  def table(typed)
    (typed || {}).transform_values { |value| native(value) }
  end

  # A value as bunny gave it, for the answer.
  def plain(value)
    case value
    when Hash then value.to_h { |key, inner| [plain(key.to_s), plain(inner)] }
    when Array then value.map { |inner| plain(inner) }
    when Time then { T: value.to_i }
    when BigDecimal then decimal(value)
    when String
      text = value.dup.force_encoding(Encoding::UTF_8)
      text.valid_encoding? ? text : { x: Base64.strict_encode64(value) }
    else value
    end
  end

  def decimal(value)
    scale = [value.scale, 0].max
    { D: [scale, (value * (10**scale)).to_i] }
  end
end

Driver.new.serve
