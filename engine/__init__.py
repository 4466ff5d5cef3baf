"""The broker as a pure machine: no I/O, no tasks; clock and chance are passed in.

This is the public interface: other packages import these names only. `errors` has a class for each refusal. The journal
also imports `engine.state`, to restore the state after a restart.
"""

from ..settings.queue_types import QUEUE_TYPES
from . import errors
from .broker import Broker
from .bulk_delete import BulkDelete, is_large
from .clients.client import Client
from .clients.connection_info import ConnectionInfo, PeerCertificate
from .clients.publish_with_room import PartlyPublished
from .clients.session import Session
from .clients.session_counts import PastSessions
from .clients.slow_consumers import SlowConsumer
from .clients.transaction import Commit
from .clock import MS, Clock, ManualClock, bounded_ms, due_after
from .dead_letters import Unroutable, dead_letter_queues
from .deadlines import Deadline, Deadlines
from .delivery.consumer import UNLIMITED, Consumer, Holder, holder_of
from .delivery.effects import ConsumerCancelled, Delivered, Effect, SessionFailed
from .durability import UNTIL_STATED, Durability
from .errors import BadRequest, ConnectionForced, EngineError, NotFound, VirtualHostNotFound
from .events import TERMINAL, EventKind
from .exchanges.exchange import EXCHANGE_TYPES, PREDECLARED, Binding, DirectExchange, Exchange
from .flow.control import BlockedEvent, FlowControl
from .flow.round_robin import Waiter
from .flow.usage import FullLimit, Usage
from .flow.warnings import BlockedWarning
from .message_filter import chosen_by, takes_all
from .messages.content import (
    PLAIN,
    PROPERTIES,
    REPLY_TO_ME,
    CommonHeader,
    ContentError,
    Cut,
    Framing,
    PropertySummary,
    PropertyValue,
    decode_properties,
    encode_header,
    scan_properties,
)
from .messages.deaths import REJECTED, origin_of
from .messages.event import Event, Listener, MixedEvent
from .messages.field_table import (
    Field,
    FieldTable,
    FieldTableError,
    UnknownFieldTag,
    decode_bare_table,
    decode_table,
    encode_table,
    number_of,
)
from .messages.json_tables import json_of_table, table_of_json
from .messages.message import Envelope, Message
from .messages.shapes import Shape, Shapes
from .messages.sizes import BOUNDS, Sizes
from .move_targets import FindTarget, to_exchange, to_origin, to_queue
from .moving import DISCARDED, Choice, DryRunResult, Moving, QueueGone, why_not
from .object_events import (
    BindingEvent,
    ClusterEvent,
    ConnectionEvent,
    ExchangeEvent,
    ParameterEvent,
    PolicyEvent,
    QueueEvent,
    SettingsEvent,
    UserDeclaredEvent,
    UserUndeclaredEvent,
    VirtualHostEvent,
)
from .options import NO_LIMITS, BrokerOptions, MessageAddress, VirtualHostLimits
from .publishing.answering import answer_request
from .publishing.arrival import publish_by_name
from .publishing.publish_events import MixedPublishedEvent, PublishedEvent
from .publishing.route import Route
from .publishing.service import ServiceExchange
from .queues import consumers, reconfigure, scheduled
from .queues.kinds import OPTIONAL_KINDS, REPLY_PREFIX, REPLY_TO, kind_of_type
from .queues.queue import Queue
from .queues.queue_events import (
    AckedEvent,
    ConsumerEvent,
    DeliveredEvent,
    DueEvent,
    EnqueuedEvent,
    LeaseEndedEvent,
    LeftEvent,
    MixedEnqueuedEvent,
    NotesEvent,
    RequeuedEvent,
    ScheduledEvent,
    TransferredEvent,
)
from .rules.arguments import (
    ARGUMENTS,
    Reason,
    check_consumer_arguments,
    check_expiration,
    queue_type_of,
    unknown_arguments,
)
from .rules.queue_rules import own_settings
from .stores.paged_run import Location, messages_of
from .stores.tail import Unreadable
from .stores.tail_io import runs_of
from .stores.temp_store import TempStore
from .turn import Turn, part_of, share_of
from .users.access import HTTP, User, Users
from .users.login_throttle import THIS_MACHINE, LoginThrottle, address_origin
from .users.passwords import NO_PASSWORD, SALT_SIZE, SHA256, PasswordHash, hash_password, read_password_hash
from .users.permissions import Grant, Permissions, TopicPermission
from .virtual_host import VirtualHost

__all__ = [
    "QueueGone",
    "Moving",
    "DryRunResult",
    "DISCARDED",
    "Choice",
    "FindTarget",
    "BOUNDS",
    "ARGUMENTS",
    "AckedEvent",
    "BadRequest",
    "Binding",
    "BindingEvent",
    "BlockedWarning",
    "BlockedEvent",
    "Broker",
    "BrokerOptions",
    "Client",
    "Clock",
    "ClusterEvent",
    "Commit",
    "CommonHeader",
    "ConnectionEvent",
    "ConnectionForced",
    "Consumer",
    "ConsumerCancelled",
    "ConsumerEvent",
    "ContentError",
    "Cut",
    "Deadline",
    "Deadlines",
    "Delivered",
    "DeliveredEvent",
    "DirectExchange",
    "DueEvent",
    "Durability",
    "EXCHANGE_TYPES",
    "Effect",
    "BulkDelete",
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
    "FullLimit",
    "HTTP",
    "Grant",
    "Holder",
    "LeaseEndedEvent",
    "LeftEvent",
    "ConnectionInfo",
    "LoginThrottle",
    "Listener",
    "MS",
    "ManualClock",
    "Message",
    "MixedEnqueuedEvent",
    "MixedEvent",
    "MixedPublishedEvent",
    "NotFound",
    "NotesEvent",
    "MessageAddress",
    "NO_LIMITS",
    "NO_PASSWORD",
    "PartlyPublished",
    "PLAIN",
    "PROPERTIES",
    "PREDECLARED",
    "PasswordHash",
    "ParameterEvent",
    "PastSessions",
    "PeerCertificate",
    "Permissions",
    "Location",
    "PolicyEvent",
    "PropertySummary",
    "PropertyValue",
    "PublishedEvent",
    "OPTIONAL_KINDS",
    "QUEUE_TYPES",
    "Queue",
    "QueueEvent",
    "REJECTED",
    "REPLY_PREFIX",
    "REPLY_TO",
    "REPLY_TO_ME",
    "Reason",
    "RequeuedEvent",
    "Route",
    "SALT_SIZE",
    "SHA256",
    "ScheduledEvent",
    "TransferredEvent",
    "ServiceExchange",
    "Session",
    "SlowConsumer",
    "SessionFailed",
    "SettingsEvent",
    "Shape",
    "Shapes",
    "Sizes",
    "THIS_MACHINE",
    "TERMINAL",
    "TempStore",
    "TopicPermission",
    "Turn",
    "UNLIMITED",
    "UNTIL_STATED",
    "UnknownFieldTag",
    "Unreadable",
    "Unroutable",
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
    "address_origin",
    "answer_request",
    "publish_by_name",
    "chosen_by",
    "takes_all",
    "dead_letter_queues",
    "decode_bare_table",
    "decode_properties",
    "decode_table",
    "due_after",
    "encode_header",
    "encode_table",
    "errors",
    "hash_password",
    "holder_of",
    "is_large",
    "json_of_table",
    "kind_of_type",
    "messages_of",
    "number_of",
    "origin_of",
    "own_settings",
    "part_of",
    "queue_type_of",
    "read_password_hash",
    "runs_of",
    "scan_properties",
    "table_of_json",
    "to_exchange",
    "to_origin",
    "to_queue",
    "why_not",
    "unknown_arguments",
    "consumers",
    "reconfigure",
    "scheduled",
    "share_of",
]
