"""A broker without `[cluster]` in its configuration pays nothing for clusters."""

import subprocess
import sys

PROGRAM = """
import sys
import leveret.__main__, leveret.cli.serve_command, leveret.serving.app, leveret.testing, leveret.console.server
print(sorted(name for name in sys.modules if name.startswith("leveret.cluster")))
"""


def test_a_plain_broker_imports_nothing_of_a_cluster() -> None:
    """Neither the command line nor what it serves with, the test broker and the console."""
    run = subprocess.run([sys.executable, "-P", "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
