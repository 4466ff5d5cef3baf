# mypy: implicit-reexport
# ruff: noqa: F401 - imported for others
"""The broker as a pure machine: no I/O, no tasks; clock and chance are passed in.

This is the public interface: other packages import these names only. `errors` has a class for each refusal. The journal
also imports `engine.state`, to restore the state after a restart.
"""

from ..settings.queue_types import QUEUE_TYPES
from . import errors
from .broker import Broker
from .bulk_delete import BulkDelete, is_large
from .clients.client import Client, ConnectionInfo, PeerCertificate
from .clients.session import Session
from .clients.session_counts import PastSessions
from .clients.slow_consumers import SlowConsumer
from .clients.transaction import Commit
from .clock import MS, Clock, ManualClock, bounded_ms, due_after
from .dead_letters import Unroutable, dead_letter_queues
from .deadlines import Deadline, Deadlines
from .declared_names import declared_name
from .delivery.consumer import Consumer, Holder, holder_of
from .delivery.effects import ConsumerCancelled, Delivered, Effect, SessionFailed
from .durability import UNTIL_CAUGHT_UP, Durability
from .errors import BadRequest, ConnectionForced, EngineError, NotFound
from .events import TERMINAL, EventKind
from .exchanges.exchange import EXCHANGE_TYPES, PREDECLARED, Binding, DirectExchange, Exchange
from .flow.control import BlockedEvent, BlockedWarning
from .flow.usage import FullLimit
from .message_filter import chosen_by, takes_all
from .messages.content import (
    NATIVE,
    PROPERTIES,
    REPLY_TO_ME,
    CommonHeader,
    ContentColumns,
    ContentError,
    Framing,
    PropertySummary,
    PropertyValue,
    decode_properties,
    encode_header,
    scan_properties,
)
from .messages.dead_letter import REJECTED, origin_of
from .messages.event import Event, MixedEvent
from .messages.field_table import (
    Field,
    FieldTable,
    FieldTableError,
    UnknownFieldTag,
    decode_bare_table,
    decode_table,
    encode_table,
    text_of,
)
from .messages.json_tables import is_same_json, json_of_table, table_of_json
from .messages.message import UNLIMITED, Envelope, Message
from .messages.shapes import Shape, Shapes
from .messages.sizes import BODY_SIZE_BUCKETS
from .move_targets import FindTarget, to_exchange, to_origin, to_queue
from .moving import DISCARDED, Choice, Moving, QueueGone
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
from .publishing.arrival import answer_request, publish_by_name
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
    NOTE_PREFIX,
    Reason,
    check_consumer_arguments,
    check_expiration,
    plain_arguments,
    queue_type_of,
    unknown_arguments,
)
from .rules.queue_rules import own_settings
from .stores.paged_run import Location, messages_of
from .stores.storage import TempStore
from .stores.tail import Unreadable
from .stores.tail_io import runs_of
from .turn import Turn, part_of, share_of
from .users.access import HTTP, User, Users
from .users.login_throttle import THIS_MACHINE, LoginThrottle, address_origin
from .users.passwords import (
    NO_PASSWORD,
    SALT_SIZE,
    SHA256,
    PasswordHash,
    hash_password,
    octets_of_base64,
    read_password_hash,
)
from .users.permissions import Grant, Permissions, TopicPermission
from .virtual_host import VirtualHost
