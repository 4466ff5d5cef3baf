"""A disk that is full, or fails, under a broker: publishers hear it, consumers go on, nothing confirmed is lost."""

from typing import Any

from desk import GETS, PUBLISHES, VirtualDesk
from simulated_files import SimulatedFiles

from leveret.journal import Journal, WriterState
from leveret.journal.recorder import Recorder
from leveret.journal.restore import restore

PATH = "data"


class DurableDesk(VirtualDesk):
    """A desk whose broker has a journal on simulated files; commits happen in `settle`."""

    def __init__(self, files: SimulatedFiles) -> None:
        super().__init__()
        broker = self.pair.broker
        self.journal = Journal.open(PATH, self.pair.clock, files=files, threaded=False, new_id=b"0123456789abcdef")
        self.recorder = Recorder(broker, self.journal)
        restore(broker, self.journal, self.recorder)
        self.failures: list[Exception] = []
        self.journal.set_callbacks(lambda lsn: None, self._failed)

    def _failed(self, error: Exception) -> None:
        self.failures.append(error)
        self.recorder.has_failed = True

    def _call(self, channel: int, kind: Any, **fields: Any) -> Any:
        answer = super()._call(channel, kind, **fields)
        if answer is None and channel == GETS and kind.name.endswith(("Declare", "Bind")):
            self.settle()
            (answer,) = self.peer.take()
        return answer

    def settle(self) -> None:
        """The journal's thread does its work, the broker hears of it."""
        self.journal.commit()
        self.journal.wait(self.journal.next_lsn)
        self.pair.broker.more_is_safe()
        self.pair.end_turn()


def outcomes(desk: DurableDesk) -> list[str]:
    """Confirms that have come."""
    return [type(one.frame).__name__ for one in desk.peer.take() if one.channel == PUBLISHES]


def test_confirms_wait_for_the_disk() -> None:
    """Nothing before the commit; all in order after it; transient messages behind persistent ones wait too."""
    desk = DurableDesk(SimulatedFiles())
    desk.declare()
    assert desk.publish("A", "B", delivery_mode=2) == ["", ""]
    desk.settle()
    assert outcomes(desk) == ["Ack"]


def test_a_transient_message_does_not_wait() -> None:
    """It is not in the journal."""
    desk = DurableDesk(SimulatedFiles())
    desk.declare()
    assert desk.publish("A") == ["ack"]


def test_a_failing_disk_refuses_and_consumers_go_on() -> None:
    """What waits is nacked, new persistent messages are nacked at once, transient ones and deliveries go on."""
    files = SimulatedFiles()
    desk = DurableDesk(files)
    desk.declare()
    desk.publish("safe", delivery_mode=2)
    desk.settle()
    assert outcomes(desk) == ["Ack"]

    def fail(operation: str, path: str) -> None:
        if operation == "sync":
            raise OSError(5, "Input/output error")

    files.fault = fail
    desk.publish("A", delivery_mode=2)
    desk.settle()
    assert outcomes(desk) == ["Nack"]
    assert desk.failures and desk.journal.state is WriterState.FAILED
    assert desk.publish("B", delivery_mode=2) == ["nack"]
    assert desk.publish("C") == ["ack"]
    got = desk.get()
    assert got is not None and got.body == "safe"
    desk.ack(got)


def test_a_restart_finds_what_was_confirmed() -> None:
    """After the failure and a power cut: the confirmed message, and no other."""
    files = SimulatedFiles()
    desk = DurableDesk(files)
    desk.declare()
    desk.publish("safe", delivery_mode=2)
    desk.settle()
    files.fault = lambda operation, path: (_ for _ in ()).throw(OSError(5, "EIO")) if operation == "sync" else None
    desk.publish("lost", delivery_mode=2)
    desk.settle()
    again = DurableDesk(files.power_cut())
    assert again.all() == "safe"
