"""Messages that a length limit drops, or never lets in, count for no segment's life; a restart changes nothing."""

import pytest
from simulated_files import SimulatedFiles

from leveret.engine import Broker, Envelope, ManualClock, User
from leveret.engine.messages.content import PLAIN, encode_header, scan_properties
from leveret.engine.messages.field_table import Field, FieldTable
from leveret.journal import Journal, JournalOptions
from leveret.journal.recording.recorder import Recorder
from leveret.journal.recording.restore import restore


class Kept:
    """A broker on simulated files."""

    def __init__(self, files: SimulatedFiles) -> None:
        clock = ManualClock()
        self.files = files
        self.broker = Broker(clock)
        options = JournalOptions(preallocate_size=0)
        self.journal = Journal.open("data", clock, options, files=files, threaded=False, new_id=bytes(16))
        restore(self.broker, self.journal, Recorder(self.broker, self.journal, counts_max=-1))

    def settle(self) -> None:
        while self.broker.end_turn():
            self.journal.commit()
        self.journal.commit()
        assert self.journal.wait(self.journal.next_lsn)

    def ids(self, name: str) -> list[int]:
        return [message.id for message in self.broker.virtual_hosts["/"].queues.named(name).messages()]

    def live(self) -> int:
        return sum(row.live for row in self.journal.ledger.rows)


@pytest.mark.parametrize(
    "overflow, there, dead",
    [("drop-head", [4, 5], 0), ("reject-publish", [1, 2], 0), ("reject-publish-dlx", [1, 2], 3)],
)
def test_the_ledger_counts_what_is_there(overflow: str, there: list[int], dead: int) -> None:
    """Five messages into a queue of two, whatever happens to the others."""
    kept = Kept(SimulatedFiles())
    vhost = kept.broker.virtual_hosts["/"]
    arguments: FieldTable = {"x-max-length": Field("I", 2), "x-overflow": Field("S", overflow.encode())}
    if dead:
        arguments |= {
            "x-dead-letter-exchange": Field("S", b""),
            "x-dead-letter-routing-key": Field("S", b"dead"),
        }
    vhost.queues.declare("q", client=None, durable=True, arguments=arguments)
    vhost.queues.declare("dead", client=None, durable=True)
    session = kept.broker.connections.open("/", User("u"), name="c", flush=lambda: None).open_session()
    for _ in range(5):
        header = encode_header(1, {"delivery_mode": 2})
        content = PLAIN.join(header, b"x")
        session.publish(
            vhost.router.route("", "q", User("u")),
            Envelope("", "q", scan_properties(header[12:])),
            [content],
            mandatory=False,
        )
    kept.settle()
    assert kept.ids("q") == there and len(kept.ids("dead")) == dead
    assert kept.live() == len(there) + dead
    again = Kept(kept.files.power_cut())
    assert again.ids("q") == there and len(again.ids("dead")) == dead
    assert again.live() == len(there) + dead
