"""The load generator checks what it measures: it passes against leveret, and it notices every planted fault."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tampering_proxy import ACK, DELIVER, HEADER_BYTES, NACK, tampering_proxy

from leveret.interop.brokers.peers import Peer, leveret

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TIMEOUT_SECONDS = 500
FAULT_AT = 50  # the delivery that is changed
LOAD = ["--count", "200", "--size", "64", "--confirm", "20", "--ack", "1", "--prefetch", "10", "--drain-timeout", "1"]

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc on this machine: it builds the generator")


def test_every_scenario_passes_the_checks() -> None:
    """`make bench-quick`: nothing lost, repeated, reordered or mangled in any of the benchmark's loads."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "compare.py"), "--quick"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def generator() -> Path:
    """The generator, built."""
    source = f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r}); import generator; generator.build()"
    subprocess.run([sys.executable, "-c", source], check=True, timeout=TIMEOUT_SECONDS)
    return BENCHMARKS / "bin" / "amqp_load"


@pytest.fixture(scope="module")
def broker() -> Iterator[Peer]:
    """One broker for all faults."""
    with leveret() as peer:
        yield peer


def _xor(frame: bytes, offset: int) -> bytes:
    octets = bytearray(frame)
    octets[offset] ^= 1
    return bytes(octets)


Delivery = list[bytes]
DELIVERY_FAULTS: dict[str, tuple[str, Callable[[Delivery], Delivery | None]]] = {
    "delivery lost": ("lost", lambda delivery: []),
    "delivery repeated": ("dup", lambda delivery: delivery * 2),
    "octet of the body changed": ("bad_body", lambda delivery: [*delivery[:2], _xor(delivery[2], HEADER_BYTES + 40)]),
    "property changed": ("bad_body", lambda delivery: [delivery[0], _xor(delivery[1], -2), delivery[2]]),
    "routing key changed": ("bad_route", lambda delivery: [_xor(delivery[0], -2), *delivery[1:]]),
    "redelivered set": ("redelivered", lambda delivery: [_set_redelivered(delivery[0]), *delivery[1:]]),
    "connection cut": ("proto", lambda delivery: None),
}


def _set_redelivered(deliver: bytes) -> bytes:
    consumer_tag_size = deliver[HEADER_BYTES + 4]
    return _xor(deliver, HEADER_BYTES + 4 + 1 + consumer_tag_size + 8)


@pytest.mark.parametrize("fault", DELIVERY_FAULTS)
def test_a_changed_delivery_is_noticed(fault: str, generator: Path, broker: Peer) -> None:
    """One delivery of two hundred is changed on its way: the run fails, and the error has the right name."""
    error, change = DELIVERY_FAULTS[fault]
    seen = 0

    def tamper(unit: list[bytes]) -> list[bytes] | None:
        nonlocal seen
        if not unit[0][HEADER_BYTES:].startswith(DELIVER):
            return unit
        seen += 1
        return change(unit) if seen == FAULT_AT else unit

    assert _errors(generator, broker, tamper)[error] > 0


def test_two_deliveries_in_the_wrong_order_are_noticed(generator: Path, broker: Peer) -> None:
    """Messages of one publisher arrive in its order."""
    held: list[bytes] = []
    seen = 0

    def tamper(unit: list[bytes]) -> list[bytes]:
        nonlocal seen
        if not unit[0][HEADER_BYTES:].startswith(DELIVER):
            return unit
        seen += 1
        if seen == FAULT_AT:
            held.extend(unit)
            return []
        # The tags stay in order: only the messages change places.
        return [held[0], *unit[1:], unit[0], *held[1:]] if seen == FAULT_AT + 1 else unit

    assert _errors(generator, broker, tamper)["order"] > 0


CONFIRM_FAULTS: dict[str, tuple[str, Callable[[bytes], list[bytes]]]] = {
    "confirms lost": ("unconfirmed", lambda frame: []),
    "confirm of an unknown tag": ("bad_confirm", lambda frame: [frame, _xor(frame, HEADER_BYTES + 5)]),
    "nack instead of ack": ("nack", lambda frame: [frame.replace(ACK, NACK)]),
}


@pytest.mark.parametrize("fault", CONFIRM_FAULTS)
def test_a_changed_confirm_is_noticed(fault: str, generator: Path, broker: Peer) -> None:
    """Every message is confirmed, once, and positively."""
    error, change = CONFIRM_FAULTS[fault]

    def tamper(unit: list[bytes]) -> list[bytes]:
        return change(unit[0]) if unit[0][HEADER_BYTES:].startswith(ACK) else unit

    assert _errors(generator, broker, tamper)[error] > 0


def _errors(generator: Path, broker: Peer, tamper: Callable[[list[bytes]], list[bytes] | None]) -> dict[str, int]:
    """The error counts of a run that must fail."""
    with tampering_proxy(broker.port, tamper) as port:
        done = subprocess.run(
            [str(generator), "--port", str(port), *LOAD], capture_output=True, text=True, timeout=TIMEOUT_SECONDS
        )
    assert done.returncode == 1, done.stdout + done.stderr
    errors: dict[str, int] = json.loads(done.stdout)["errors"]
    return errors
