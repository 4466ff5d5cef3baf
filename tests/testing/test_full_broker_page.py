"""docs/when-the-broker-is-full.md does what it says: its programs run as they stand."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from consumers import channel_of

from leveret.testing import RunningBroker

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "when-the-broker-is-full.md").read_text()
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.DOTALL))
GO_MODULE = ROOT / "interop" / "drivers" / "go"


def test_its_tests_pass(tmp_path: Path) -> None:
    """Those of pika, aio-pika and kombu."""
    pytest.importorskip("kombu")
    assert FILES.keys() == {"shop_pika.py", "shop_aio_pika.py", "shop_kombu.py", "test_full_broker.py"}
    assert PAGE.count("```python") == len(FILES)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_full_broker.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"= 7 passed", done.stdout), done.stdout


@pytest.mark.toolchain
def test_its_program_in_go(broker: RunningBroker, tmp_path: Path) -> None:
    """Three orders fit; the others are refused, or, if they are held, in doubt."""
    if shutil.which("go") is None:
        pytest.skip("no go on the PATH")
    (source,) = re.findall(r"```go\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "shop.go").write_text(source)
    for name in ("go.mod", "go.sum"):
        shutil.copy(GO_MODULE / name, tmp_path)
    built = subprocess.run(
        ["go", "build", "-o", "shop", "."], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    if "dial tcp" in built.stderr or "lookup " in built.stderr:
        pytest.skip("amqp091-go cannot be fetched here")
    assert built.returncode == 0, built.stderr
    with channel_of(broker.url) as channel:
        channel.queue_declare("orders")
    assert _shop(broker, tmp_path, fails=True) == ["accepted"] * 3 + ["refused: later, or elsewhere"] * 3
    broker.remove("orders")
    outcomes = _shop(broker, tmp_path, fails=False)
    assert outcomes[:3] == ["accepted"] * 3
    assert all(one.startswith("in doubt: no confirm came") for one in outcomes[3:]), outcomes


def _shop(broker: RunningBroker, folder: Path, *, fails: bool) -> list[str]:
    """What became of six orders, for three of which there is room."""
    with broker.faults.memory_limit("3 KiB", "orders", fails=fails):
        done = subprocess.run(["./shop", broker.url], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [line.partition(" ")[2] for line in done.stdout.splitlines()]
