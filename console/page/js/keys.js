// Keys of policies and arguments that people use most: [key, an example, what it does]. The broker knows more.
export const POLICY_KEYS = [
  ["message-ttl", 60000, "milliseconds after which a message expires"],
  ["expires", 1800000, "milliseconds without use after which a queue is deleted"],
  ["max-length", 1000, "messages at most; overflow says what happens then"],
  ["max-length-bytes", 1048576, "octets of bodies at most; overflow says what happens then"],
  ["overflow", "reject-publish", "of a full queue: drop-head, reject-publish or reject-publish-dlx"],
  ["dead-letter-exchange", "dead", "exchange that gets dead letters; empty: the default exchange"],
  ["dead-letter-routing-key", "dead", "their routing key, beside the exchange; without it they keep their own"],
  ["delivery-limit", 5, "redeliveries after which a message is a dead letter; of quorum queues"],
  ["redelivery-delay", 5000, "milliseconds before a rejected message is delivered again"],
  ["ring-size", 100, "messages that a queue keeps: the newest ones, without refusing any"],
  ["consumer-timeout", 1800000, "milliseconds a consumer may keep a message unacknowledged"],
  ["max-age", "7D", "of streams: age after which messages are deleted (Y, M, D, h, m, s)"],
  ["alternate-exchange", "unrouted", "of exchanges: gets messages that reach no queue"],
];

/** Those that operator policies may have, too. */
const LIMITS = ["message-ttl", "expires", "max-length", "max-length-bytes", "delivery-limit"];
export const OPERATOR_KEYS = POLICY_KEYS.filter(([key]) => LIMITS.includes(key));

/** Those that queues have as arguments, too, with x- before them. */
const QUEUES_HAVE = ["message-ttl", "expires", "max-length", "max-length-bytes", "overflow", "dead-letter-exchange", "dead-letter-routing-key", "delivery-limit", "redelivery-delay", "ring-size"];
/** Those of queues alone. */
const QUEUE_ONLY = [
  ["max-priority", 10, "highest priority of messages; classic queues only"],
  ["single-active-consumer", true, "one consumer at a time gets messages"],
  ["last-value-key", "device", "header: of each of its values only the newest message is kept"],
];
export const QUEUE_ARGUMENTS = [...POLICY_KEYS.filter(([key]) => QUEUES_HAVE.includes(key)), ...QUEUE_ONLY].map(([key, ...rest]) => [`x-${key}`, ...rest]);

export const EXCHANGE_ARGUMENTS = [["alternate-exchange", "unrouted", "gets messages that reach no queue"]];
