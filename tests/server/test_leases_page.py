"""docs/leases.md does what it says: its programs run as they stand, and print what stands under them."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_process import BrokerProcess, leveret_serve

PAGE = (Path(__file__).parents[2] / "docs" / "leases.md").read_text()
FOUND = re.findall(r"```python\n# (\w+)\.py\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)
#: But that for a cluster (tests/cluster/test_owners.py).
PROGRAMS = [program for program in FOUND if program[0] != "sites"]
QOS = "channel.basic_qos(prefetch_count=10)\n"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One for all programs, with a journal."""
    with leveret_serve((path := tmp_path_factory.mktemp("leases")), data=path / "data") as broker:
        yield broker


@pytest.mark.parametrize(("name", "source", "output"), PROGRAMS, ids=[name for name, _, _ in PROGRAMS])
def test_its_programs(broker: BrokerProcess, name: str, source: str, output: str) -> None:
    """Copied from the page, with only the port changed."""
    source = source.replace(":5672/", f":{broker.port}/")
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert done.stdout == output


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGKILL])
def test_a_restart_in_the_middle_of_a_replay(tmp_path: Path, stop: signal.Signals) -> None:
    """The last example, whose bookmark is used after another start."""
    source, output = next((source, output) for name, source, output in PROGRAMS if name == "replay")
    begin, first, last = re.split(r"(?<=\n\n)(?=channel\.basic_qos|for method)", source)
    end = "connection.close()\n"
    found = []
    after = ""
    for part in (begin + first + "print(after)\n" + end, begin.split("channel.queue_declare")[0] + QOS + last):
        with leveret_serve(tmp_path, data=tmp_path / "data") as broker:
            part = f"after = {after!r}\n" + part.replace(":5672/", f":{broker.port}/")
            done = subprocess.run([sys.executable, "-c", part], capture_output=True, text=True, timeout=180)
            assert done.returncode == 0, done.stderr
            *lines, after = done.stdout.splitlines()
            found += [*lines, after] if found else lines
            broker.process.send_signal(stop)
            broker.process.wait(timeout=60)
    assert found == output.splitlines()


def test_no_program_is_left_out() -> None:
    """Each has its output."""
    assert PAGE.count("```python") == PAGE.count("```text") == len(PROGRAMS) + 1 == len(FOUND) == 9
