"""A broker without `[cluster]` in its configuration pays nothing for clusters."""

import subprocess
import sys

PROGRAM = """
import sys
import leveret.__main__, leveret.cli.serve_command, leveret.serving.app, leveret.testing, leveret.console.server
print(sorted(name for name in sys.modules if name.startswith("leveret.cluster")))
"""

#: A node without the package of the extra `console`.
WITHOUT_CONSOLE = """
import gc
import sys
from types import SimpleNamespace
sys.modules["h11"] = None
from leveret.serving.served_node import ServedNode
node = SimpleNamespace(_listeners=SimpleNamespace(console={{}}, metrics={metrics}))
ServedNode.preload(node)
print("leveret.serving.supervisor" in sys.modules, len(gc.get_objects()) < 1000)
"""


def test_a_plain_broker_imports_nothing_of_a_cluster() -> None:
    """Neither the command line nor what it serves with, the test broker and the console."""
    run = subprocess.run([sys.executable, "-P", "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_a_node_without_the_console_leads() -> None:
    """`make cluster` installs no extra. Where metrics are served, the package is there.

    The collector leaves the modules alone: an idle follower would look through their objects every ten seconds.
    """
    command = [sys.executable, "-P", "-c"]
    run = subprocess.run([*command, WITHOUT_CONSOLE.format(metrics="{}")], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "True True"
    run = subprocess.run([*command, WITHOUT_CONSOLE.format(metrics="{1: 2}")], capture_output=True, text=True)
    assert "h11" in run.stderr
