"""The names that only the journal needs, to record the contents of queues and to restore them after a restart.

No package but the journal imports this file.
"""

from .messages.duplicates import IdCache
from .queues import stream
from .queues.non_destructive import know_contents
from .stores.kept_store import KeptStore
from .stores.memory_budget import OVERHEAD
from .stores.paged_message import body_size
from .stores.paged_places import Left, stretches
from .stores.paged_run import HEADER_OCTETS, Part, Run
from .stores.topic_log import Entered, LoggedMessage, Page, TopicLog, Wanted

__all__ = [
    "HEADER_OCTETS",
    "OVERHEAD",
    "Entered",
    "IdCache",
    "KeptStore",
    "Left",
    "LoggedMessage",
    "Page",
    "Part",
    "Run",
    "TopicLog",
    "Wanted",
    "body_size",
    "know_contents",
    "stream",
    "stretches",
]
