"""Task frameworks' workers, scaled down: FastStream's scenarios on a real Leveret, where its environment was made."""

import subprocess
import sys
from pathlib import Path

import pytest

from leveret.interop.workers.outcomes import Run, differences, render

ROOT = Path(__file__).parents[2]
ENVIRONMENT = ROOT / ".peers" / "workers" / "faststream"


@pytest.mark.skipif(not ENVIRONMENT.exists(), reason="`make workers` has not made FastStream's environment here")
def test_faststream_on_leveret(tmp_path: Path) -> None:
    """Messages, requests, acknowledgement policies, a worker killed, the broker killed."""
    command = [sys.executable, "-m", "leveret.interop.workers", "--only", "faststream", "--broker", "leveret"]
    done = subprocess.run([*command, "--out", str(tmp_path / "out.json")], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("as expected") == 10  # as it goes, and in the table


def test_a_difference_is_told() -> None:
    """What failed here alone, and what came out otherwise."""
    versions = {"some": "1"}
    ours = Run(versions, {"a": {"failed": "E", "detail": "", "seconds": 1.0, "about": ""}, "b": {"facts": 1}})
    theirs = Run(versions, {"a": {"facts": 0, "seconds": 1.0, "about": ""}, "b": {"facts": 2}})
    told = differences("some", {"leveret": ours, "rabbitmq": theirs})
    assert [line.split(":")[1].strip() for line in told] == ["a failed on leveret", "b"]
    assert not differences("some", {"leveret": theirs, "rabbitmq": theirs})
    assert "FAILED" in render(
        {
            "some": {
                "leveret": Run(versions, {"a": ours.outcomes["a"]}),
                "rabbitmq": Run(versions, {"a": theirs.outcomes["a"]}),
            }
        }
    )
