"""Ring queues, redelivery, dead letters and expiry as the table beside a real Artemis has them."""

from collections.abc import Iterator

import pytest

from leveret.interop.artemis.leveret_side import Leveret, LeveretProcess
from leveret.interop.artemis.run import Trial
from leveret.interop.artemis.side import Taken
from leveret.interop.artemis.table import Scenario, broker_xml, read_table
from leveret.interop.peers import durable_leveret
from leveret.testing import RunningBroker, start_broker

TABLE = read_table()


class VirtualLeveret(Leveret):
    """A test broker, whose time passes only while a scenario waits."""

    def __init__(self, broker: RunningBroker) -> None:
        self._broker = broker
        super().__init__(broker.url)

    def now(self) -> float:
        return self._broker.clock.elapsed

    def wait(self, seconds: float) -> None:
        self._broker.clock.advance(seconds=seconds)

    def receive(self, name: str, count: int, seconds: float) -> list[Taken]:
        consumer = self._consumers[name]
        deadline = self.now() + seconds
        while True:
            due_ns = self._broker.ask(
                lambda: self._broker.edge.broker.next_deadline_ns()
            )  # and it has sent what it has
            consumer.connection.process_data_events(0)
            left = round(deadline - self.now(), 6)
            if len(consumer.incoming) >= count or left <= 0:
                break
            self.wait(left if due_ns is None else min(left, max(0.001, due_ns / 1e9 - self.now())))
        taken, consumer.incoming[:count] = consumer.incoming[:count], []
        return taken

    def counts(self, queue: str) -> dict[str, int]:
        shown = self._broker.queue(queue)
        counters = {name: shown.counters.get(name, 0) for name in ("expired", "killed")}
        return {"ready": len(shown.ready), "unacked": len(shown.unacked), "scheduled": len(shown.scheduled)} | counters


@pytest.fixture(scope="module")
def virtual_broker() -> Iterator[RunningBroker]:
    """One for all scenarios, as Artemis was."""
    with start_broker(clock="virtual", config=broker_xml(TABLE)) as broker:
        yield broker


def names(scenarios: list[Scenario]) -> list[str]:
    return [scenario.name for scenario in scenarios]


ON_VIRTUAL_TIME = [scenario for scenario in TABLE if not scenario.needs_a_process]


@pytest.mark.parametrize("scenario", ON_VIRTUAL_TIME, ids=names(ON_VIRTUAL_TIME))
def test_leveret_shows_what_the_table_says(virtual_broker: RunningBroker, scenario: Scenario) -> None:
    """What was agreed with a real Artemis, and the listed differences, hold without one."""
    side = VirtualLeveret(virtual_broker)
    try:
        assert Trial("leveret", side, scenario, TABLE).run() == ()
    finally:
        side.end()


@pytest.fixture(scope="module")
def leveret_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeveretProcess]:
    """A real `leveret serve` with a journal and a broker.xml of its own."""
    file = tmp_path_factory.mktemp("artemis") / "broker.xml"
    file.write_text(broker_xml(TABLE))
    with durable_leveret("--config", str(file)) as peer:
        side = LeveretProcess(peer, file)
        yield side
        side.end()


IN_A_PROCESS = [scenario for scenario in TABLE if scenario.needs_a_process]


@pytest.mark.parametrize("scenario", IN_A_PROCESS, ids=names(IN_A_PROCESS))
def test_leveret_restarted_or_configured_anew(leveret_process: LeveretProcess, scenario: Scenario) -> None:
    """The same where the broker is stopped, killed, or reads another broker.xml on the way."""
    assert Trial("leveret", leveret_process, scenario, TABLE).run() == ()
