"""Rows of leased queues by real clients against a real `leveret serve`. All of them: `make interop`.

Source: queues page G.A.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.interop.__main__ import main
from leveret.interop.brokers.broker import Broker
from leveret.interop.brokers.fresh import FRESH
from leveret.interop.running.run import FAILED, PASSED
from leveret.interop.running.scenario import LEASES, read_features
from leveret.interop.running.suite import Driven, Suite
from leveret.interop.running.toolchains import CLIENTS, NotHere

#: One of each kind, without those that wait for nothing to come.
SCALED = {
    "lease-declared-again", "lease-refused-declaration", "lease-ends-by-time", "lease-ends-by-time-strict",
    "lease-ends-with-the-consumer", "lease-max-deliveries", "lease-in-a-transaction", "select-topic",
    "select-by-content", "select-bad-filter", "select-round-robin", "select-by-priority", "select-browse",
    "select-control",
}  # fmt: skip


#: Where `make interop` builds drivers: those that take long to build are used here as they are.
BUILT = Path(__file__).parents[2] / ".peers" / "drivers"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with FRESH["leveret"]() as broker:
        yield broker


@pytest.mark.parametrize("client", ["pika", "librabbitmq", "php-amqplib", "bunny", "amqp091-go", "amqplib"])
def test_clients_pass(broker: Broker, tmp_path: Path, client: str) -> None:
    """Pika, and those of other languages that need no long build, or were built by `make interop`."""
    folder = BUILT / CLIENTS[client].folder
    is_long = client in ("amqp091-go", "amqplib")
    if is_long and not (folder / ".built").exists():
        pytest.skip(f"no driver for {client} here (make interop builds it)")
    try:
        driven = Driven(CLIENTS[client].prepare(BUILT if is_long else tmp_path, print), tmp_path / "log")
    except NotHere as error:
        pytest.skip(str(error))
    chosen = [one for feature in read_features(LEASES) for one in feature.scenarios if one.name in SCALED]
    assert {one.name for one in chosen} == SCALED
    try:
        results = Suite(broker, {client: driven}, seconds=60).run(chosen)
    finally:
        driven.end()
    assert {(one.scenario, one.reason) for one in results if one.verdict == FAILED} == set()
    assert sum(one.verdict == PASSED for one in results) > len(SCALED) - 3


def test_their_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Results with all scenarios, each with its row."""
    options = [
        "--client",
        "pika",
        "--only",
        "select-topic",
        "--work",
        str(tmp_path),
        "--scorecard",
        str(tmp_path / "l"),
    ]
    assert main(["--broker", "leveret", "--leases", *options]) == 0
    assert "1 passed, 0 failed" in capsys.readouterr().out
    page = (tmp_path / "l.md").read_text()
    assert page.startswith("# Leased queues over sockets\n") and "[l.json](l.json)" in page
    for feature in read_features(LEASES):
        for one in feature.scenarios:
            assert f"[{one.name}](../../interop/leases/{one.file}#L{one.line}): {one.says}" in page
