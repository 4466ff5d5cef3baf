"""A configuration with [cluster] on the command line."""

from pathlib import Path

import pytest

from leveret.__main__ import main

NODE = """\
[cluster]
node = "a"
nodes = ["a=127.0.0.1:7001", "b=127.0.0.1:7002", "c=127.0.0.1:7003"]
etcd = ["http://127.0.0.1:2379"]
"""


def test_a_node_is_not_kept_in_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is confirmed is on its disk (docs/cluster.md)."""
    file = tmp_path / "node.toml"
    file.write_text(NODE)
    assert main(["serve", "--config", str(file), "--memory"]) == 2
    assert "--memory: a node of a cluster has what is confirmed on disk" in capsys.readouterr().err
