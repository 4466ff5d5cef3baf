"""The broker itself, as a pure machine: no I/O, no clock, no chance of its own.

Frontends use what is named here and nothing else; `errors` has a class for each refusal.
"""

from . import errors
from .broker import Broker
from .clock import Clock, ManualClock, due_after
from .deadlines import Deadline, Deadlines
from .delivery.consumer import Consumer, Holder, holder_of
from .durability import UNTIL_STATED, Durability
from .messages.content import PLAIN, CommonHeader, ContentError, PropertyFacts, scan_properties
from .messages.deaths import REJECTED
from .messages.field_table import (
    Field,
    FieldTable,
    FieldTableError,
    UnknownFieldTag,
    decode_bare_table,
    decode_table,
    encode_table,
)
from .messages.message import Envelope, Message
from .options import BrokerOptions, MessageAddress, VirtualHostLimits
from .peers.client import Client, Effect
from .peers.commit import Commit
from .peers.effects import ConsumerCancelled, Delivered, SessionFailed
from .peers.session import Session
from .publishing.route import Route
from .publishing.service import ServiceExchange
from .queues.queue import Queue, QueueStatistics, queue_of
from .queues.reply_queue import REPLY_PREFIX, REPLY_TO
from .rules.arguments import Reason, check_consumer_arguments, check_expiration, queue_type_of
from .statistics import BrokerStatistics
from .users.access import TAGS, User, Users
from .users.passwords import PasswordHash, hash_password, read_password_hash
from .users.permissions import Grant, Permissions, TopicPermission
from .virtual_host import VirtualHost

__all__ = [
    "PLAIN",
    "REJECTED",
    "REPLY_PREFIX",
    "REPLY_TO",
    "TAGS",
    "UNTIL_STATED",
    "Broker",
    "BrokerOptions",
    "BrokerStatistics",
    "Client",
    "Clock",
    "Commit",
    "CommonHeader",
    "Consumer",
    "ConsumerCancelled",
    "ContentError",
    "Deadline",
    "Deadlines",
    "Delivered",
    "Durability",
    "Effect",
    "Envelope",
    "Field",
    "FieldTable",
    "FieldTableError",
    "Grant",
    "Holder",
    "ManualClock",
    "Message",
    "MessageAddress",
    "PasswordHash",
    "Permissions",
    "PropertyFacts",
    "Queue",
    "QueueStatistics",
    "Reason",
    "Route",
    "ServiceExchange",
    "Session",
    "SessionFailed",
    "TopicPermission",
    "UnknownFieldTag",
    "User",
    "Users",
    "VirtualHost",
    "VirtualHostLimits",
    "check_consumer_arguments",
    "check_expiration",
    "decode_bare_table",
    "decode_table",
    "due_after",
    "encode_table",
    "errors",
    "hash_password",
    "holder_of",
    "queue_of",
    "queue_type_of",
    "read_password_hash",
    "scan_properties",
]
