"""`leveret pipeline JOB ...`: runs a job in a child process, because Spark must not run in a broker's process.

The child ends when this process ends, and stops Spark's Java process first. After SIGINT or SIGTERM it gets a SIGTERM.
It is in another session, so that Ctrl-C does not reach it as well. If this process is killed, the child sees the end of
its stdin, a pipe to which nothing is written. The job `serve` reads the stdin of this process instead, and ends with
that.
Source: Spark page 6.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec

import trio

EXIT_FAILED = 1
#: Maximum seconds for Spark to stop after a SIGTERM.
TIMEOUT_SECONDS = 20


def run(arguments: Sequence[str]) -> int:
    """Run the job to its end; returns its exit code."""
    if find_spec("pyarrow") is None and not {"-h", "--help"} & set(arguments):
        how = "pip install 'leveret[pipeline]', or 'leveret[spark]' for large journals"
        print(f"leveret pipeline: its libraries are not installed; {how}", file=sys.stderr)
        return EXIT_FAILED
    return trio.run(_run, [sys.executable, "-m", "leveret.pipeline", *arguments])


async def _run(command: list[str]) -> int:
    is_serving = command[3:4] == ["serve"]
    environment = {**os.environ, "LEVERET_PIPELINE_CHILD": "" if is_serving else "1"}
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            process: trio.Process = await nursery.start(
                partial(
                    trio.run_process,
                    command,
                    stdin=None if is_serving else subprocess.PIPE,
                    check=False,
                    env=environment,
                    start_new_session=True,
                    deliver_cancel=_end,
                )
            )

            async def pass_on() -> None:
                async for _ in signals:
                    nursery.cancel_scope.cancel()

            nursery.start_soon(pass_on)
            await process.wait()
            nursery.cancel_scope.cancel()
    assert process.returncode is not None
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


async def _end(process: trio.Process) -> None:
    """Terminate, wait, kill."""
    process.terminate()
    with trio.move_on_after(TIMEOUT_SECONDS):
        await process.wait()
        return
    process.kill()
