"""Parts of a message besides its body: its envelope, and its predefined names in selectors.

Source: queues page B.4 (predefined names), A.2 (topic of a publish).
"""

from collections.abc import Callable

from ..subject import Subject
from ..values import Value, number_in

#: AMQP 0-9-1 has no priority for messages that do not set one; Artemis has 4.
_PRIORITY_DEFAULT = 4


def topic_name(subject: Subject) -> Value:
    """The exchange of the publish; for the default exchange its routing key."""
    return subject.exchange or subject.routing_key


def _size(subject: Subject) -> Value:
    return len(subject.body())


def _property(name: str) -> Callable[[Subject], Value]:
    return lambda subject: subject.property(name)


def _unknown(subject: Subject) -> Value:
    """NULL, because a message gets its bookmark and its leases in a queue, after the filters have tested it."""
    return None


def _priority(subject: Subject) -> Value:
    priority = subject.property("priority")
    return _PRIORITY_DEFAULT if priority is None else priority


def _is_persistent(subject: Subject) -> bool:
    return subject.property("delivery_mode") == 2


def _delivery_mode(subject: Subject) -> Value:
    return "PERSISTENT" if _is_persistent(subject) else "NON_PERSISTENT"


def _durable(subject: Subject) -> Value:
    return "DURABLE" if _is_persistent(subject) else "NON_DURABLE"


def _timestamp(subject: Subject) -> Value:
    """The timestamp in milliseconds, as in JMS; the property is in seconds. NULL: the message has none."""
    seconds = subject.property("timestamp")
    return seconds * 1000 if isinstance(seconds, int) else None


def _expiration(subject: Subject) -> Value:
    """The time to live in milliseconds; 0: the message does not expire; NULL: the property is no number."""
    text = subject.property("expiration")
    return number_in(text) if isinstance(text, str) else 0


def _group_id(subject: Subject) -> Value:
    headers = subject.headers()
    return headers.get("JMSXGroupID", headers.get("_AMQ_GROUP_ID"))


#: Functions without arguments.
OF_MESSAGE: dict[str, Callable[[Subject], Value]] = {
    "TOPIC_NAME": topic_name,
    "ROUTING_KEY": lambda subject: subject.routing_key,
    "EXCHANGE": lambda subject: subject.exchange,
    "CORRELATION_ID": _property("correlation_id"),
    "MESSAGE_SIZE": _size,
    "BOOKMARK": _unknown,
    "LEASE_COUNT": _unknown,
    "LAST_LEASED": _unknown,
}

#: Predefined names, which are not headers.
PREDEFINED: dict[str, Callable[[Subject], Value]] = {
    "JMSPriority": _property("priority"),
    "JMSMessageID": _property("message_id"),
    "JMSCorrelationID": _property("correlation_id"),
    "JMSType": _property("type"),
    "JMSTimestamp": _timestamp,
    "JMSDeliveryMode": _delivery_mode,
    "JMSXGroupID": _group_id,
    "AMQPriority": _priority,
    "AMQExpiration": _expiration,
    "AMQDurable": _durable,
    "AMQTimestamp": _timestamp,
    "AMQSize": _size,
    "AMQUserID": _property("user_id"),
    "AMQAddress": topic_name,
    "AMQGroupID": _group_id,
}
#: HornetQ's names.
PREDEFINED |= {f"HQ{name[3:]}": read for name, read in PREDEFINED.items() if name.startswith("AMQ")}
