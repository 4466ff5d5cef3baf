"""`make cluster`: what it prints, a node that is killed and started again, an end in order."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from etcd_servers import ETCD, WHY_NOT

COMMAND = [sys.executable, "-P", "-m", "leveret.interop.brokers.local_cluster", "--directory"]


def again(directory: Path, name: str) -> subprocess.CompletedProcess[str]:
    """`make cluster-node`."""
    return subprocess.run([*COMMAND, str(directory), "--start", name], capture_output=True, text=True, check=False)


@pytest.mark.skipif(ETCD is None, reason=WHY_NOT)
def test_three_nodes_from_one_command(tmp_path: Path) -> None:
    """A line for each node, which reads a further file, when all accept clients; one that was killed is started again.

    It ends by SIGINT, also of a shell's background, where that is ignored.
    """
    directory = tmp_path / "made"
    more = tmp_path / "queues.toml"
    more.write_text('[[queue]]\nname = "q"\n')
    in_background = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", *COMMAND, str(directory), "--config", str(more)]
    with subprocess.Popen(in_background, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            lines = [running.stdout.readline() for _ in range(5)]
            assert lines[0] == f"leveret cluster in {directory}\n" and lines[4] == "leveret cluster ready\n"
            ready = r"leveret node (\w) ready amqp://127\.0\.0\.1:(\d+)/ pid (\d+)\n"
            found = [re.fullmatch(ready, line) for line in lines[1:4]]
            pids = {match[1]: int(match[3]) for match in found if match is not None}
            assert list(pids) == ["a", "b", "c"]
            assert all(str(more) in Path(f"/proc/{pid}/cmdline").read_text() for pid in pids.values())
            os.kill(pids["b"], signal.SIGKILL)
            assert running.stdout.readline() == "leveret node b was killed by SIGKILL\n"
            said = again(directory, "b")
            match = re.fullmatch(ready, said.stdout)
            assert match is not None and int(match[3]) not in pids.values(), said
            assert running.stdout.readline() == said.stdout
            assert again(directory, "b").stderr == f"leveret node b runs already, pid {match[3]}\n"
        finally:
            running.send_signal(signal.SIGINT)
        assert running.wait() == 0
    assert f"no cluster runs in {directory}" in again(directory, "b").stderr
    assert [pid for pid in directory.glob("*.pid") if Path(f"/proc/{pid.read_text()}").exists()] == []


def test_without_a_cluster_there_is_nothing_to_start(tmp_path: Path) -> None:
    """It says how to start one."""
    assert "no cluster was started in" in again(tmp_path, "a").stderr
