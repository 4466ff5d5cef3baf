"""The journal's door: what it needs beside the façade, to record what is in a queue and to put it back after a restart.

Only names of other files; nothing outside the engine but the journal imports them.
"""

from .queues.non_destructive import NonDestructiveQueue
from .queues.stream_queue import StreamQueue
from .stores.paged_message import body_size
from .stores.paged_places import stretches
from .stores.paged_run import Part, Run
from .stores.stream_store import HEADER_OCTETS

__all__ = [
    "HEADER_OCTETS",
    "NonDestructiveQueue",
    "Part",
    "Run",
    "StreamQueue",
    "body_size",
    "stretches",
]
