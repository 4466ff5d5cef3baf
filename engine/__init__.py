"""The broker itself, as a pure machine: no I/O, no clock, no chance of its own.

Frontends use what is named here and nothing else.
"""

from .broker import Broker, BrokerStatistics
from .clock import Clock, ManualClock
from .deadlines import Deadline, Deadlines
from .delivery.consumer import Consumer, Holder, holder_of
from .durability import Durability
from .messages.message import Envelope, Message
from .options import BrokerOptions, MessageAddress, VirtualHostLimits
from .peers.client import Client, Effect
from .peers.effects import ConsumerCancelled, Delivered
from .peers.session import Session, SessionFailed
from .publishing.routing import Route
from .publishing.service import ServiceExchange
from .queues.queue import Queue, QueueStatistics
from .users.access import TAGS, User, Users
from .users.passwords import PasswordHash, hash_password, read_password_hash
from .users.permissions import Grant, Permissions, TopicPermission
from .virtual_host import VirtualHost

__all__ = [
    "TAGS",
    "Broker",
    "BrokerOptions",
    "BrokerStatistics",
    "Client",
    "Clock",
    "Consumer",
    "ConsumerCancelled",
    "Deadline",
    "Deadlines",
    "Delivered",
    "Durability",
    "Effect",
    "Envelope",
    "Grant",
    "Holder",
    "ManualClock",
    "Message",
    "MessageAddress",
    "PasswordHash",
    "Permissions",
    "Queue",
    "QueueStatistics",
    "Route",
    "ServiceExchange",
    "Session",
    "SessionFailed",
    "TopicPermission",
    "User",
    "Users",
    "VirtualHost",
    "VirtualHostLimits",
    "hash_password",
    "holder_of",
    "read_password_hash",
]
