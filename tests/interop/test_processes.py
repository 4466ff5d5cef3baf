"""Brokers that a command started end with it."""

import os
import signal
import subprocess
import sys

PROGRAM = """
import os, sys
from pathlib import Path
from leveret.interop.brokers.processes import started, unwind_on_sigterm
unwind_on_sigterm()
with started(["sleep", "600"], os.environ, Path(os.devnull)) as process:
    print(process.pid, flush=True)
    process.wait()
"""


def test_a_command_that_gets_sigterm_ends_what_it_started() -> None:
    """Its exit code says which signal it was."""
    command = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
    assert command.stdout is not None
    broker = int(command.stdout.readline())
    command.send_signal(signal.SIGTERM)
    assert command.wait(60) == 128 + signal.SIGTERM
    assert not os.path.exists(f"/proc/{broker}")
