<?php
// What operations and answers say, as php-amqplib takes and gives it.

use PhpAmqpLib\Message\AMQPMessage;
use PhpAmqpLib\Wire\AMQPAbstractCollection;
use PhpAmqpLib\Wire\AMQPArray;
use PhpAmqpLib\Wire\AMQPDecimal;
use PhpAmqpLib\Wire\AMQPTable;

const PROPERTIES = ['content_type', 'content_encoding', 'delivery_mode', 'priority', 'correlation_id', 'reply_to',
    'expiration', 'message_id', 'timestamp', 'type', 'user_id', 'app_id', 'cluster_id'];

/** Arguments by name, those that the operation does not say as given. */
function flags(array $request, array $otherwise): array
{
    return array_intersect_key($request, $otherwise) + $otherwise;
}

function binding(array $request): array
{
    return ['routing_key' => $request['routing_key'] ?? '', 'arguments' => table_of($request)];
}

function table_of(array $request, string $name = 'arguments'): AMQPTable
{
    return native_table($request[$name] ?? []);
}

function native_table(array $typed): AMQPTable
{
    $table = new AMQPTable();
    foreach ($typed as $key => $value) {
        $table->set((string) $key, ...native($value));
    }
    return $table;
}

/** A typed value as php-amqplib takes it, and its number for the type. */
function native(array $value): array
{
    $letter = array_key_first($value);
    $inner = $value[$letter];
    if ($letter === 'A') {
        $list = new AMQPArray();
        foreach ($inner as $one) {
            $list->push(...native($one));
        }
        $inner = $list;
    } elseif ($letter === 'F') {
        $inner = native_table($inner);
    } elseif ($letter === 'x') {
        $inner = base64_decode($inner);
    } elseif ($letter === 'D') {
        $inner = new AMQPDecimal($inner[1], $inner[0]);
    }
    return [$inner, AMQPAbstractCollection::getDataTypeForSymbol($letter)];
}

/** A value as php-amqplib has it (its type and the value), for the answer. */
function plain(array $pair): mixed
{
    [$type, $value] = $pair;
    $letter = AMQPAbstractCollection::getSymbolForDataType($type);
    return match (true) {
        $value instanceof AMQPTable => plain_table($value),
        $value instanceof AMQPArray => array_values(array_map(plain(...), iterator_to_array($value))),
        $value instanceof AMQPDecimal => ['D' => [$value->getE(), $value->getN()]],
        $letter === 'T' => ['T' => $value instanceof DateTimeInterface ? $value->getTimestamp() : (int) $value],
        $letter === 't' => (bool) $value,
        strpos('bBsUuIilL', $letter) !== false => (int) $value,
        is_string($value) => mb_check_encoding($value, 'UTF-8') ? $value : ['x' => base64_encode($value)],
        default => $value,
    };
}

function plain_table(AMQPTable $table): object
{
    return (object) array_map(plain(...), iterator_to_array($table));
}

function new_message(array $request): AMQPMessage
{
    $properties = $request['properties'] ?? [];
    if (isset($request['headers'])) {
        $properties['application_headers'] = table_of($request, 'headers');
    }
    return new AMQPMessage(base64_decode($request['body'] ?? ''), $properties);
}

function content_of(AMQPMessage $message): array
{
    $said = $message->get_properties();
    $properties = array_intersect_key($said, array_flip(PROPERTIES));
    if (isset($properties['timestamp'])) {
        $properties['timestamp'] = (int) $properties['timestamp'];
    }
    $headers = $said['application_headers'] ?? null;
    return ['body' => base64_encode($message->body), 'properties' => (object) $properties,
        'headers' => $headers ? plain_table($headers) : null];
}

function message_of(AMQPMessage $message): array
{
    return ['delivery_tag' => (int) $message->getDeliveryTag(), 'redelivered' => (bool) $message->isRedelivered(),
        'exchange' => $message->getExchange(), 'routing_key' => $message->getRoutingKey()] + content_of($message);
}
