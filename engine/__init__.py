"""The broker itself, as a pure machine: no I/O, no clock, no chance of its own.

Frontends use what is named here and nothing else.
"""

from .access import TAGS, User, Users
from .broker import Broker, BrokerStatistics
from .client import Client, ConsumerCancelled, Effect
from .clock import Clock, ManualClock
from .consumer import Consumer, Holder
from .deadlines import Deadline, Deadlines
from .durability import Durability
from .message import Delivered, Envelope, Message
from .options import BrokerOptions, MessageAddress, VirtualHostLimits
from .passwords import PasswordHash, hash_password, read_password_hash
from .permissions import Grant, Permissions, TopicPermission
from .queue import Queue, QueueStatistics
from .routing import Route
from .service import ServiceExchange
from .session import Session, SessionFailed
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
    "read_password_hash",
]
