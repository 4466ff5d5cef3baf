"""A real broker inside your tests: on a real socket, ready in milliseconds, inspectable, breakable, with virtual time.

    from leveret.testing import start_broker

    with start_broker(clock="virtual") as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        ...
        broker.clock.advance(hours=2)
        assert broker.queue("orders").bodies == [b"again"]

docs/testing-your-application.md walks through it.
"""

from typing import TYPE_CHECKING, Any

from .green_threads import refuse_green_threads

refuse_green_threads()

from .blocked import BlockedSnapshot  # noqa: E402
from .broker import BrokerAt, NotSettled, RunningBroker  # noqa: E402
from .broker_assertions import QueueMissing  # noqa: E402
from .clock import Autojump, ClockIsReal, TestClock  # noqa: E402
from .history import HistoryEvent, PublishedMessage, Record  # noqa: E402
from .leases import LeaseSnapshot  # noqa: E402
from .loop_thread import BrokerStopped, WouldBlockTheLoop  # noqa: E402
from .matching import Partial  # noqa: E402
from .options import QUIET_MS_DEFAULT, BrokerOptionsError, Config  # noqa: E402
from .snapshots import ConsumerSnapshot, MessageSnapshot, Properties, QueueSnapshot  # noqa: E402
from .start import open_broker, start_broker  # noqa: E402

#: The former name of `BrokerAt`, the class of `broker.vhost(name)`.
VirtualHostView = BrokerAt

if TYPE_CHECKING:
    from .fault import Fault
    from .faults import Faults
    from .recording import Recording, RecordingError, Replay, ReplayReport
    from .unittest_mixin import BrokerTestMixin
    from .workers import WorkerFailed, process_worker, thread_worker

#: Name -> module, for names whose modules load the frontend or unittest: these are loaded on first use.
_LATER = {
    "Fault": "fault",
    "Faults": "faults",
    "Recording": "recording",
    "RecordingError": "recording",
    "Replay": "recording",
    "ReplayReport": "recording",
    "BrokerTestMixin": "unittest_mixin",
    "WorkerFailed": "workers",
    "process_worker": "workers",
    "thread_worker": "workers",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _LATER:
        from ..settings.faults import nearest

        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{nearest(name, __all__)}")
    return getattr(import_module(f".{_LATER[name]}", __name__), name)


__all__ = [
    "QUIET_MS_DEFAULT",
    "Autojump",
    "BlockedSnapshot",
    "BrokerAt",
    "BrokerOptionsError",
    "BrokerStopped",
    "BrokerTestMixin",
    "ClockIsReal",
    "Config",
    "ConsumerSnapshot",
    "Fault",
    "Faults",
    "HistoryEvent",
    "LeaseSnapshot",
    "MessageSnapshot",
    "NotSettled",
    "Partial",
    "Properties",
    "PublishedMessage",
    "QueueMissing",
    "QueueSnapshot",
    "Record",
    "Recording",
    "RecordingError",
    "Replay",
    "ReplayReport",
    "RunningBroker",
    "TestClock",
    "VirtualHostView",
    "WorkerFailed",
    "WouldBlockTheLoop",
    "open_broker",
    "process_worker",
    "start_broker",
    "thread_worker",
]
