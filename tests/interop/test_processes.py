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


TOOLS = """
import os, subprocess, sys, tempfile
from contextlib import contextmanager
from pathlib import Path
from leveret.interop.brokers.processes import started
from leveret.interop.tools import __main__ as tools
from leveret.interop.tools.tool import Tool

@contextmanager
def http_broker(broker):
    with started(["sleep", "600"], os.environ, Path(os.devnull)) as process:
        yield process

def run(broker, directory, work):
    print(broker.pid, directory, flush=True)
    subprocess.run(["sleep", "2"])
    return run(broker, directory, work)

tools.http_broker, tools.TOOLS = http_broker, {"slow": Tool("slow", "", "", lambda work: "1", run, needs_scene=False)}
tools.main(["--broker", "leveret", "--work", tempfile.mkdtemp()])
"""


def test_a_command_that_gets_sigterm_ends_what_it_started() -> None:
    """Its exit code says which signal it was."""
    command = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
    assert command.stdout is not None
    broker = int(command.stdout.readline())
    command.send_signal(signal.SIGTERM)
    assert command.wait(60) == 128 + signal.SIGTERM
    assert not os.path.exists(f"/proc/{broker}")


def test_tools_that_run_end_by_sigterm() -> None:
    """With their broker and their files, in the middle of a check."""
    command = subprocess.Popen([sys.executable, "-c", TOOLS], stdout=subprocess.PIPE, text=True)
    assert command.stdout is not None
    broker, directory = command.stdout.readline().split()
    command.send_signal(signal.SIGTERM)
    assert command.wait(60) == 128 + signal.SIGTERM
    assert not os.path.exists(f"/proc/{broker}") and not os.path.exists(directory)
