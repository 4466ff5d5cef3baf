"""The broker itself, as a pure machine: no I/O, no clock, no chance of its own.

What is outside this room uses what is named here and nothing else; `errors` has a class for each refusal. The journal
has a second door, `engine.state`, for what recovery has to put back.
"""

from . import errors
from .broker import Broker
from .clock import AHEAD_MS_MAX, MS, Clock, ManualClock, bounded_ms, due_after
from .deadlines import Deadline, Deadlines
from .delivery.consumer import UNLIMITED, Consumer, Holder, Recipient, holder_of
from .durability import UNTIL_STATED, Durability
from .effort import part_of
from .emptying import Emptying, is_large
from .errors import ConnectionForced, EngineError, VirtualHostNotFound
from .events import TERMINAL, EventKind
from .exchanges.exchange import EXCHANGE_TYPES, PREDECLARED, Binding, DirectExchange, Exchange
from .flow.control import Blocked, FlowControl, Full
from .flow.ring import Waiter
from .flow.usage import Usage
from .flow.warnings import BlockedWarning
from .messages.content import (
    PLAIN,
    REPLY_TO_ME,
    CommonHeader,
    ContentError,
    Cut,
    Framing,
    PropertyFacts,
    PropertyValue,
    decode_properties,
    encode_header,
    scan_properties,
)
from .messages.deaths import REJECTED
from .messages.event import Event, Listener, MixedEvent
from .messages.field_table import (
    DEPTH_MAX,
    Field,
    FieldTable,
    FieldTableError,
    UnknownFieldTag,
    decode_bare_table,
    decode_table,
    encode_table,
    integer_of,
    number_of,
)
from .messages.message import Envelope, Message
from .messages.shapes import Shape, Shapes
from .object_events import (
    BindingEvent,
    BlockedEvent,
    ConnectionEvent,
    ExchangeEvent,
    PolicyEvent,
    QueueEvent,
    SettingsEvent,
    UserDeclaredEvent,
    UserUndeclaredEvent,
    VirtualHostEvent,
)
from .options import NO_LIMITS, BrokerOptions, MessageAddress, VirtualHostLimits
from .peers.client import Client
from .peers.commit import Commit
from .peers.effects import ConsumerCancelled, Delivered, Effect, SessionFailed
from .peers.offer import Offer
from .peers.session import Session
from .peers.slow_consumers import SlowConsumer
from .pressure import Pressure
from .publishing.arrival import publish_by_name
from .publishing.publish_events import DuplicateEvent, MixedPublishedEvent, PublishedEvent
from .publishing.route import Route
from .publishing.service import ServiceExchange
from .queues.queue import Queue, QueueStatistics, queue_of
from .queues.queue_events import (
    AckedEvent,
    ConsumerEvent,
    DeliveredEvent,
    DueEvent,
    EnqueuedEvent,
    LeftEvent,
    MixedEnqueuedEvent,
    RequeuedEvent,
    ScheduledEvent,
)
from .queues.reply_queue import REPLY_PREFIX, REPLY_TO
from .rules.arguments import ARGUMENTS, QUEUE_TYPES, Reason, check_consumer_arguments, check_expiration, queue_type_of
from .rules.queue_rules import own_settings
from .statistics import BrokerStatistics
from .stores.paged_run import Place, messages_of
from .stores.tail import Unreadable
from .stores.temp_store import TempStore
from .users.access import TAGS, User, Users
from .users.passwords import NO_PASSWORD, SALT_SIZE, SHA256, PasswordHash, hash_password, read_password_hash
from .users.permissions import Grant, Permissions, TopicPermission
from .virtual_host import VirtualHost

__all__ = [
    "AHEAD_MS_MAX",
    "ARGUMENTS",
    "AckedEvent",
    "Binding",
    "BindingEvent",
    "Blocked",
    "BlockedWarning",
    "BlockedEvent",
    "Broker",
    "BrokerOptions",
    "BrokerStatistics",
    "Client",
    "Clock",
    "Commit",
    "CommonHeader",
    "ConnectionEvent",
    "ConnectionForced",
    "Consumer",
    "ConsumerCancelled",
    "ConsumerEvent",
    "ContentError",
    "Cut",
    "DEPTH_MAX",
    "Deadline",
    "Deadlines",
    "Delivered",
    "DeliveredEvent",
    "DirectExchange",
    "DueEvent",
    "DuplicateEvent",
    "Durability",
    "EXCHANGE_TYPES",
    "Effect",
    "Emptying",
    "EngineError",
    "EnqueuedEvent",
    "Envelope",
    "Event",
    "EventKind",
    "Exchange",
    "ExchangeEvent",
    "Field",
    "FieldTable",
    "FieldTableError",
    "FlowControl",
    "Framing",
    "Full",
    "Grant",
    "Holder",
    "LeftEvent",
    "Listener",
    "MS",
    "ManualClock",
    "Message",
    "MixedEnqueuedEvent",
    "MixedEvent",
    "MixedPublishedEvent",
    "MessageAddress",
    "NO_LIMITS",
    "NO_PASSWORD",
    "Offer",
    "PLAIN",
    "PREDECLARED",
    "PasswordHash",
    "Permissions",
    "Place",
    "PolicyEvent",
    "Pressure",
    "PropertyFacts",
    "PropertyValue",
    "PublishedEvent",
    "QUEUE_TYPES",
    "Queue",
    "QueueEvent",
    "QueueStatistics",
    "REJECTED",
    "REPLY_PREFIX",
    "REPLY_TO",
    "REPLY_TO_ME",
    "Reason",
    "Recipient",
    "RequeuedEvent",
    "Route",
    "SALT_SIZE",
    "SHA256",
    "ScheduledEvent",
    "ServiceExchange",
    "Session",
    "SlowConsumer",
    "SessionFailed",
    "SettingsEvent",
    "Shape",
    "Shapes",
    "TAGS",
    "TERMINAL",
    "TempStore",
    "TopicPermission",
    "UNLIMITED",
    "UNTIL_STATED",
    "UnknownFieldTag",
    "Unreadable",
    "Usage",
    "User",
    "UserDeclaredEvent",
    "UserUndeclaredEvent",
    "Users",
    "VirtualHost",
    "VirtualHostEvent",
    "VirtualHostLimits",
    "VirtualHostNotFound",
    "Waiter",
    "bounded_ms",
    "check_consumer_arguments",
    "check_expiration",
    "decode_bare_table",
    "decode_properties",
    "decode_table",
    "due_after",
    "encode_header",
    "encode_table",
    "errors",
    "hash_password",
    "holder_of",
    "integer_of",
    "is_large",
    "messages_of",
    "number_of",
    "own_settings",
    "part_of",
    "publish_by_name",
    "queue_of",
    "queue_type_of",
    "read_password_hash",
    "scan_properties",
]
