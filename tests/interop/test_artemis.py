"""Ring queues, redelivery, dead letters and expiry as the table beside a real Artemis has them."""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from leveret.interop.artemis import distribution
from leveret.interop.artemis.leveret_side import Leveret
from leveret.interop.artemis.page import page
from leveret.interop.artemis.run import Result, Trial, run
from leveret.interop.artemis.side import Received
from leveret.interop.artemis.table import Scenario, TableError, broker_xml, read_table
from leveret.interop.brokers.maven import NotFetched, unpack, why_java_is_missing
from leveret.interop.brokers.peers import Peer, durable_leveret
from leveret.interop.brokers.processes import PeerFailed
from leveret.testing import RunningBroker, start_broker
from leveret.testing.options import read_options

ROOT = Path(__file__).parents[2]
WORK = ROOT / ".peers" / "artemis"
TABLE = read_table()


class VirtualLeveret(Leveret):
    """A test broker, whose time passes only while a scenario waits."""

    def __init__(self, broker: RunningBroker) -> None:
        self._broker = broker
        super().__init__(Peer("leveret", broker.port, os.getpid(), Path(), Path()), Path())

    def now(self) -> float:
        return self._broker.clock.elapsed

    def wait(self, seconds: float) -> None:
        self._broker.clock.advance(seconds=seconds)

    def receive(self, name: str, count: int, seconds: float) -> list[Received]:
        consumer = self._consumers[name]
        deadline = self.now() + seconds
        while True:
            due_ns = self._broker.ask(
                lambda: self._broker.runtime.broker.next_deadline_ns()
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

    def configure(self, configuration: str) -> None:
        runtime, read = self._broker.runtime, read_options(config=configuration).configuration

        def apply() -> None:
            runtime.options = replace(runtime.options, configuration=read)
            runtime.apply_configuration()

        self._broker.ask(apply)

    def has(self, queue: str) -> bool:
        return queue in {one.name for one in self._broker.vhost("/").queues()}


@pytest.fixture(scope="module")
def virtual_broker() -> Iterator[RunningBroker]:
    """One for all scenarios, as Artemis was."""
    with start_broker(clock="virtual", config=broker_xml(TABLE)) as broker:
        yield broker


def names(scenarios: list[Scenario]) -> list[str]:
    return [scenario.name for scenario in scenarios]


ON_VIRTUAL_TIME = [scenario for scenario in TABLE if not scenario.restarts]


@pytest.mark.parametrize("scenario", ON_VIRTUAL_TIME, ids=names(ON_VIRTUAL_TIME))
def test_leveret_shows_what_the_table_says(virtual_broker: RunningBroker, scenario: Scenario) -> None:
    """What was agreed with a real Artemis, and the listed differences, hold without one."""
    side = VirtualLeveret(virtual_broker)
    try:
        assert Trial("leveret", side, scenario, TABLE).run() == ()
    finally:
        side.end()


@pytest.fixture(scope="module")
def leveret_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Leveret]:
    """A real `leveret serve` with a journal."""
    file = tmp_path_factory.mktemp("artemis") / "broker.xml"
    file.write_text(broker_xml(TABLE))
    with durable_leveret("--config", str(file)) as peer:
        side = Leveret(peer, file)
        yield side
        side.end()


IN_A_PROCESS = [scenario for scenario in TABLE if scenario.restarts]


@pytest.mark.parametrize("scenario", IN_A_PROCESS, ids=names(IN_A_PROCESS))
def test_leveret_shows_it_over_a_restart(leveret_process: Leveret, scenario: Scenario) -> None:
    """The same where the broker is stopped or killed on the way; nothing waits for time."""
    assert not any(step.verb == "pause" for step in scenario.steps)
    assert Trial("leveret", leveret_process, scenario, TABLE).run() == ()


#: A few of each kind, for a machine where `make artemis` was run before.
HANDFUL = (
    *("ring-newest", "ring-consumer-closes", "ring-single-returns-one-by-one", "ring-made-smaller"),
    *("redelivery-at-once", "redelivery-delay-at-most", "dead-letter-third-failure", "dead-letter-queue-of-its-own"),
    *("expiry-address", "match-exact-star-hash", "last-value"),
)
FEW = [scenario for scenario in TABLE if scenario.name in HANDFUL]


@pytest.fixture(scope="module")
def home() -> Path:
    """Artemis' distribution, where it was fetched."""
    pytest.importorskip("proton", reason="python-qpid-proton is not installed (make artemis)")
    if why := why_java_is_missing("Artemis", distribution.JAVA_VERSION_MIN):
        pytest.skip(why)
    if not (WORK / distribution.NAME).exists():
        pytest.skip("Artemis was not fetched on this machine (make artemis)")
    return WORK / distribution.NAME


@pytest.fixture(scope="module")
def artemis_peer(home: Path) -> Iterator[Peer]:
    """A real one, configured for the few."""
    with distribution.artemis(home, broker_xml(FEW)) as peer:
        yield peer


@pytest.mark.parametrize("name", HANDFUL)
def test_artemis_shows_what_the_table_says(artemis_peer: Peer, name: str) -> None:
    """A few of what `make artemis` runs whole."""
    from leveret.interop.artemis.artemis_side import Artemis

    (scenario,) = (one for one in FEW if one.name == name)
    side = Artemis(artemis_peer, distribution.configuration_file(artemis_peer.directory))
    try:
        assert Trial("artemis", side, scenario, FEW).run() == ()
    finally:
        side.end()


def test_an_artemis_that_does_not_come_up_says_why(home: Path) -> None:
    """The end of its log is in the error."""
    nonsense = broker_xml([Scenario("t", "", {"q": {"ring-sighs": 3}}, ())])
    with pytest.raises(PeerFailed, match="(?s)ended with.*ring-sighs"), distribution.artemis(home, nonsense):
        pass


def test_without_java_or_maven_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing, and what helps."""
    command = [sys.executable, "-m", "leveret.interop.artemis", "--work", str(tmp_path / "work")]
    done = subprocess.run(command, env={**os.environ, "PATH": str(tmp_path)}, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("leveret.interop.artemis: no Java on this machine")
    java = shutil.which("java")
    if java is None or why_java_is_missing("Artemis", distribution.JAVA_VERSION_MIN):
        pytest.skip("the rest needs Java")
    (tmp_path / "java").symlink_to(java)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotFetched, match="no Maven to fetch org.apache.*; or put it in"):
        distribution.fetch(tmp_path / "work")


def test_a_name_that_no_scenario_has_is_an_error() -> None:
    """Nothing that was run is no success."""
    command = [sys.executable, "-m", "leveret.interop.artemis", "--only", "rinq-*"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "leveret.interop.artemis: no scenario is called rinq-*\n")


def test_an_archive_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    """By name, and nothing half unpacked is taken for a distribution."""
    name = distribution.NAME
    whole = tmp_path / f"{name}-bin.zip"
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr(f"{name}/bin/artemis", "#!/bin/sh\n" * 1000)
    octets = whole.read_bytes()
    whole.write_bytes(octets[: len(octets) // 2])
    with pytest.raises(NotFetched, match="cannot be unpacked .*delete it"):
        unpack(whole, name)
    assert [path.name for path in tmp_path.iterdir()] == [whole.name]
    whole.write_bytes(octets)
    for _ in range(2):  # the second time it is there already
        unpack(whole, name)
        assert (tmp_path / name / "bin" / "artemis").exists()


def test_what_is_not_as_the_table_says_is_told(virtual_broker: RunningBroker) -> None:
    """Step by step, and on the page."""
    (scenario,) = (one for one in TABLE if one.name == "ring-newest")
    wrong = replace(scenario, steps=(*scenario.steps[:-1], replace(scenario.steps[-1], arguments={"expect": "ABC"})))
    told: list[Result] = []
    results = run("leveret", lambda: VirtualLeveret(virtual_broker), [wrong], told.append)
    assert results == told == [Result("ring-newest", "leveret", ("step 3 (rest q): 'BCD' instead of 'ABC'",))]


def test_the_page_tells_what_agrees_and_what_does_not() -> None:
    """A scenario that did not run on a broker counts as failed."""
    pytest.importorskip("proton", reason="python-qpid-proton is not installed (make artemis)")
    (same,) = (one for one in TABLE if one.name == "ring-newest")
    (different,) = (one for one in TABLE if one.name == "priority")
    results = [Result(one.name, broker, ()) for one in (same, different) for broker in ("artemis", "leveret")]
    assert "1 scenarios of 2 agree, 1 differ as listed, 0 failed" in page([same, different], results)
    written = page([same, different], [replace(results[0], faults=("step 1: x",)), *results[2:]])
    assert "0 scenarios of 2 agree, 1 differ as listed, 1 failed" in written
    assert "artemis: step 1: x / leveret: not run" in written


@pytest.mark.parametrize(
    "steps, error",
    [
        ('{ publish = "A", too = "q" }', "t: .*expected delay, headers"),
        ('{ rest = "q" }', "t: .*expected any-order, artemis"),
        ('{ say = "A" }', "t: a step is one of"),
        ('{ rest = "q", expect = "A", artemis = "" }', "t: `why` goes with a difference"),
    ],
)
def test_a_table_that_cannot_be_run_is_refused(tmp_path: Path, steps: str, error: str) -> None:
    """The scenario is named, and what is wrong with it."""
    file = tmp_path / "scenarios.toml"
    file.write_text(f'[[scenario]]\nname = "t"\nsays = ""\nqueues = {{}}\nsteps = [{steps}]\n')
    with pytest.raises(TableError, match=error):
        read_table(file)


@pytest.mark.parametrize("scenario", [one for one in TABLE if one.why], ids=lambda one: one.name)
def test_each_difference_has_its_line_in_the_deviations(scenario: Scenario) -> None:
    """With the reason; the scenario is its test."""
    deviations = (ROOT / "docs/DEVIATIONS.md").read_text()
    assert f"`{scenario.name}`" in deviations[deviations.index("# Where we differ from Artemis") :]


def test_the_page_has_every_scenario() -> None:
    """It was written since the table was changed."""
    page = (ROOT / "benchmarks/results/artemis.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    written = {(row[0][2:], row[1].removesuffix(" |")) for row in rows if row[0] != "| scenario"}
    assert written == {(one.name, one.says) for one in TABLE}
