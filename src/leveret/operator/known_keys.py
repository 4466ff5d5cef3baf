"""Keys of policies and of arguments that forms offer: those that people use most. The broker accepts more."""

from typing import Any

from ..settings.policies.policy_keys import POLICY_KEYS

#: (key, an example of its value, what it does)
Key = tuple[str, Any, str]

POLICY: tuple[Key, ...] = (
    ("message-ttl", 60_000, "milliseconds after which a message expires"),
    ("expires", 1_800_000, "milliseconds without use after which a queue is deleted"),
    ("max-length", 1000, "messages at most; overflow says what happens then"),
    ("max-length-bytes", 1_048_576, "octets of bodies at most; overflow says what happens then"),
    ("overflow", "reject-publish", "of a full queue: drop-head, reject-publish or reject-publish-dlx"),
    ("dead-letter-exchange", "dead", "exchange that gets dead letters; empty: the default exchange"),
    (
        "dead-letter-routing-key",
        "dead",
        "their routing key, only with dead-letter-exchange; without it they keep their own",
    ),
    ("delivery-limit", 5, "redeliveries after which a message is a dead letter; of quorum queues"),
    ("redelivery-delay", 5000, "milliseconds before a returned message is delivered again"),
    ("ring-size", 100, "messages that a queue keeps: the newest ones, without refusing any"),
    ("consumer-timeout", 1_800_000, "milliseconds a consumer may keep a message unacknowledged"),
    ("max-age", "7D", "of streams: age after which messages are deleted (Y, M, D, h, m, s)"),
    ("alternate-exchange", "unrouted", "of exchanges: gets messages that reach no queue"),
)
#: Keys that only arguments of queues have.
_QUEUE: tuple[Key, ...] = (
    ("x-max-priority", 10, "highest priority of messages; classic queues only"),
    ("x-single-active-consumer", True, "one consumer at a time gets messages"),
    ("x-last-value-key", "device", "header: only the newest message with each value is kept"),
)
OPERATOR_POLICY: tuple[Key, ...] = tuple(key for key in POLICY if POLICY_KEYS[key[0]].is_for_operators)
QUEUE: tuple[Key, ...] = (
    *((POLICY_KEYS[name].argument, value, text) for name, value, text in POLICY if POLICY_KEYS[name].argument),
    *_QUEUE,
)
EXCHANGE: tuple[Key, ...] = tuple(key for key in POLICY if key[0] == "alternate-exchange")
