<?php
// Driver for php-amqplib: operations as lines of JSON on stdin, observations on stdout (../README.md).

require_once 'PhpAmqpLib/autoload.php';
require_once __DIR__ . '/values.php';

use PhpAmqpLib\Connection\AMQPSSLConnection;
use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Exception\AMQPBasicCancelException;
use PhpAmqpLib\Exception\AMQPConnectionClosedException;
use PhpAmqpLib\Exception\AMQPIOException;
use PhpAmqpLib\Exception\AMQPProtocolException;
use PhpAmqpLib\Exception\AMQPTimeoutException;
use PhpAmqpLib\Package;

const SECONDS_MAX = 20.0;
const PUMP_SECONDS = 0.05;
const LACKS = [
    'basic.recover-async' => 'no such call',
    'connection.open:frame_max' => 'taken from the broker',
    'connection.update-secret' => 'no such call',
    'recover' => 'does not connect again by itself',
    'scenario:consume-tag-used-twice' => 'refused by the client itself',
    'scenario:durable-a-restart-is-told' => 'answers a close before it tells of it; where that fails, the line is broken',
    'type:L' => 'not written',
    'type:f' => 'not written',
    'type:d' => 'not written',
];

class Driver
{
    private array $connections = [];
    private array $channels = [];
    private array $events = [];

    public function serve(): void
    {
        $this->say(['client' => 'php-amqplib', 'version' => Package::VERSION, 'language' => 'PHP ' . PHP_VERSION,
            'lacks' => LACKS, 'reads_not' => ['L']]);
        while (($line = fgets(STDIN)) !== false) {
            $request = json_decode($line, true);
            try {
                $ok = $this->{strtr($request['do'], '.-', '__')}($request);
                $answer = ['ok' => (object) ($ok ?? [])];
            } catch (Throwable $error) {
                $answer = ['error' => $this->noticed($request, $error)];
            }
            $this->say(['id' => $request['id']] + $answer);
        }
    }

    private function say(array $answer): void
    {
        fwrite(STDOUT, json_encode($answer, JSON_PRESERVE_ZERO_FRACTION | JSON_THROW_ON_ERROR) . "\n");
    }

    private function happened(string $event, string $connection, ?string $channel, array $what = []): void
    {
        $this->events[] = ['event' => $event, 'connection' => $connection, 'channel' => $channel] + $what;
    }

    /** A close, or a broken line, is an event, too. */
    private function noticed(array $request, Throwable $error): array
    {
        $answer = $this->reason($error);
        if ($answer['scope'] !== 'client') {
            $channel = $answer['scope'] === 'channel' ? $request['channel'] : null;
            $this->happened('closed', $request['connection'], $channel, $answer);
        }
        return $answer;
    }

    private function reason(Throwable $error): array
    {
        [$code, $text] = [$error->getCode(), $error->getMessage()];
        if ($error instanceof AMQPProtocolException) {
            return ['scope' => 'channel', 'code' => $code, 'text' => $text];
        }
        if ($error instanceof AMQPConnectionClosedException && $code >= 200) {
            return ['scope' => 'connection', 'code' => $code, 'text' => preg_replace('/\(\d+, \d+\)$/', '', $text)];
        }
        $lost = $error instanceof AMQPConnectionClosedException || $error instanceof AMQPIOException;
        return ['scope' => $lost ? 'lost' : 'client', 'code' => 0, 'text' => get_class($error) . ": $text"];
    }

    private function wait(array $request): array
    {
        $deadline = microtime(true) + $request['seconds'];
        while (true) {
            $found = array_slice(array_filter($this->events, fn ($one) => $one['event'] === $request['event']
                && $one['connection'] === $request['connection']
                && ($one['channel'] === null || $one['channel'] === $request['channel'])), 0, $request['count'], true);
            $left = $deadline - microtime(true);
            if (count($found) >= $request['count'] || $left <= 0) {
                break;
            }
            $this->pump($request, min($left, PUMP_SECONDS));
        }
        $this->events = array_diff_key($this->events, $found);
        return ['events' => array_values($found)];
    }

    /** Let the client read for at most that long. */
    private function pump(array $request, float $seconds): void
    {
        $connection = $this->connections[$request['connection']] ?? null;
        $channel = $this->channels[$request['connection']][$request['channel']] ?? null;
        if (!$connection || !$connection->isConnected()) {
            usleep((int) ($seconds * 1e6));
            return;
        }
        try {
            $connection->checkHeartBeat();
            ($channel && $channel->is_open() ? $channel : $connection)->wait(null, false, $seconds);
        } catch (AMQPTimeoutException) {
            // nothing came
        } catch (AMQPBasicCancelException $cancel) {
            $this->happened('cancel', $request['connection'], $request['channel'], ['consumer_tag' => $cancel->consumerTag]);
        } catch (Throwable $error) {
            $this->noticed($request, $error);
        }
    }

    private function reset(array $request): void
    {
        foreach ($this->connections as $connection) {
            try {
                $connection->close();
            } catch (Throwable) {
                // whatever state it is in
            }
        }
        $this->connections = $this->channels = $this->events = [];
    }

    private function connection_open(array $request): void
    {
        $name = $request['connection'];
        $this->events = array_filter($this->events, fn ($one) => $one['connection'] !== $name);
        $who = [$request['user'], $request['password'], $request['vhost']];
        $heartbeat = $request['heartbeat'] ?? 0;
        if (isset($request['ca'])) {
            $tls = ['cafile' => $request['ca'], 'verify_peer' => true, 'peer_name' => 'localhost'];
            $options = ['login_method' => 'PLAIN', 'connection_timeout' => SECONDS_MAX,
                'read_write_timeout' => SECONDS_MAX, 'heartbeat' => $heartbeat];
            $connection = new AMQPSSLConnection($request['host'], $request['port'], ...$who, ssl_options: $tls, options: $options);
        } else {
            $connection = new AMQPStreamConnection($request['host'], $request['port'], ...$who, login_method: 'PLAIN',
                connection_timeout: SECONDS_MAX, read_write_timeout: SECONDS_MAX, heartbeat: $heartbeat);
        }
        $connection->set_connection_block_handler(fn ($reason) => $this->happened('blocked', $name, null, ['reason' => $reason]));
        $connection->set_connection_unblock_handler(fn () => $this->happened('unblocked', $name, null));
        $this->connections[$name] = $connection;
        $this->channels[$name] = [];
    }

    private function connection_close(array $request): void
    {
        $this->connections[$request['connection']]->close();
    }

    private function channel_open(array $request): void
    {
        [$name, $number] = [$request['connection'], $request['channel']];
        $channel = $this->connections[$name]->channel();
        $channel->set_return_listener(fn ($code, $text, $exchange, $key, $message) => $this->happened('return', $name, $number,
            ['code' => $code, 'text' => $text, 'exchange' => $exchange, 'routing_key' => $key] + content_of($message)));
        $this->channels[$name][$number] = $channel;
    }

    private function channel(array $request): object
    {
        return $this->channels[$request['connection']][$request['channel']];
    }

    private function channel_close(array $request): void
    {
        $this->channel($request)->close();
    }

    private function channel_flow(array $request): array
    {
        $this->channel($request)->flow($request['active']);
        return ['active' => $request['active']];
    }

    private function exchange_declare(array $request): void
    {
        $flags = flags($request, ['passive' => false, 'durable' => false, 'auto_delete' => false, 'internal' => false]);
        $this->channel($request)->exchange_declare($request['exchange'], $request['type'] ?? 'direct', ...$flags,
            arguments: table_of($request));
    }

    private function exchange_delete(array $request): void
    {
        $this->channel($request)->exchange_delete($request['exchange'], $request['if_unused'] ?? false);
    }

    private function exchange_bind(array $request): void
    {
        $this->channel($request)->exchange_bind($request['destination'], $request['source'], ...binding($request));
    }

    private function exchange_unbind(array $request): void
    {
        $this->channel($request)->exchange_unbind($request['destination'], $request['source'], ...binding($request));
    }

    private function queue_bind(array $request): void
    {
        $this->channel($request)->queue_bind($request['queue'], $request['exchange'], ...binding($request));
    }

    private function queue_unbind(array $request): void
    {
        $this->channel($request)->queue_unbind($request['queue'], $request['exchange'], ...binding($request));
    }

    private function queue_declare(array $request): array
    {
        $flags = flags($request, ['passive' => false, 'durable' => false, 'exclusive' => false, 'auto_delete' => false]);
        $ok = $this->channel($request)->queue_declare($request['queue'], ...$flags, arguments: table_of($request));
        return array_combine(['queue', 'message_count', 'consumer_count'], $ok);
    }

    private function queue_purge(array $request): array
    {
        return ['message_count' => $this->channel($request)->queue_purge($request['queue'])];
    }

    private function queue_delete(array $request): array
    {
        $flags = flags($request, ['if_unused' => false, 'if_empty' => false]);
        return ['message_count' => $this->channel($request)->queue_delete($request['queue'], ...$flags)];
    }

    private function basic_qos(array $request): void
    {
        [$size, $count] = [$request['prefetch_size'] ?? 0, $request['prefetch_count'] ?? 0];
        $this->channel($request)->basic_qos($size, $count, $request['global'] ?? false);
    }

    private function basic_consume(array $request): array
    {
        [$name, $number] = [$request['connection'], $request['channel']];
        $flags = flags($request, ['no_ack' => false, 'exclusive' => false]);
        $delivered = fn ($message) => $this->happened('delivery', $name, $number,
            ['consumer_tag' => $message->getConsumerTag()] + message_of($message));
        $tag = $this->channel($request)->basic_consume($request['queue'], $request['consumer_tag'] ?? '', ...$flags,
            callback: $delivered, arguments: table_of($request));
        return ['consumer_tag' => $tag];
    }

    private function basic_cancel(array $request): void
    {
        $this->channel($request)->basic_cancel($request['consumer_tag']);
    }

    private function basic_publish(array $request): void
    {
        $flags = flags($request, ['mandatory' => false, 'immediate' => false]);
        $this->channel($request)->basic_publish(new_message($request), $request['exchange'], $request['routing_key'], ...$flags);
    }

    private function basic_get(array $request): array
    {
        $message = $this->channel($request)->basic_get($request['queue'], $request['no_ack'] ?? false);
        return $message ? ['message_count' => $message->getMessageCount()] + message_of($message) : ['empty' => true];
    }

    private function basic_ack(array $request): void
    {
        $this->channel($request)->basic_ack($request['delivery_tag'], $request['multiple'] ?? false);
    }

    private function basic_nack(array $request): void
    {
        $flags = flags($request, ['multiple' => false, 'requeue' => true]);
        $this->channel($request)->basic_nack($request['delivery_tag'], ...$flags);
    }

    private function basic_reject(array $request): void
    {
        $this->channel($request)->basic_reject($request['delivery_tag'], $request['requeue'] ?? true);
    }

    private function basic_recover(array $request): void
    {
        $this->channel($request)->basic_recover($request['requeue'] ?? true);
    }

    private function confirm_select(array $request): void
    {
        $told = fn (bool $ack) => fn ($message) => $this->happened('confirm', $request['connection'], $request['channel'],
            ['seq' => (int) $message->getDeliveryTag(), 'ack' => $ack]);
        $this->channel($request)->set_ack_handler($told(true));
        $this->channel($request)->set_nack_handler($told(false));
        $this->channel($request)->confirm_select();
    }

    private function tx_select(array $request): void
    {
        $this->channel($request)->tx_select();
    }

    private function tx_commit(array $request): void
    {
        $this->channel($request)->tx_commit();
    }

    private function tx_rollback(array $request): void
    {
        $this->channel($request)->tx_rollback();
    }
}

(new Driver())->serve();
