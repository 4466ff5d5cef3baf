"""`leveret demo`: a broker with troublesome clients, and a tour of its console.

The broker is a child process (`leveret serve`) with a directory that is deleted at the end; the clients run here.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

import trio

from ..demo.tour import tour_text
from ..demo.traffic import run_programs

EXIT_OK, EXIT_FAILED, EXIT_UNUSABLE = 0, 1, 2
CONFIGURATION = Path(__file__).parents[1] / "demo" / "demo.toml"
READY = "leveret ready "
#: Lines of the broker's log that are shown if it did not start, or ended.
LOG_LINES = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--listen", default="127.0.0.1:5672", metavar="HOST:PORT", help="of the broker (port 0: any)")
    parser.add_argument(
        "--management", default="127.0.0.1:15672", metavar="HOST:PORT", help="of its console (port 0: any)"
    )
    parser.add_argument("--seconds", type=_seconds, metavar="N", help="end after this time (default: with Ctrl-C)")


def _seconds(text: str) -> float:
    """Raises: argparse.ArgumentTypeError."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds


def run(options: argparse.Namespace) -> int:
    """Start the broker, print the tour, and run the clients until the end."""
    if find_spec("h11") is None:
        print('leveret demo: needs the console, expected: pip install "leveret[console]"', file=sys.stderr)
        return EXIT_UNUSABLE
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the broker ends with this process
    with tempfile.TemporaryDirectory(prefix="leveret-demo-") as directory:
        log = Path(directory) / "broker.log"
        serve = [sys.executable, "-m", "leveret", "serve", "--config", str(CONFIGURATION), "--listen", options.listen]
        serve += ["--management", options.management, "--data", str(Path(directory) / "data")]
        with log.open("w") as errors:
            # In another session, so that Ctrl-C reaches only this process, which then stops the broker.
            broker = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True)
            try:
                return _guide(broker, log, options.seconds)
            finally:
                broker.send_signal(signal.SIGTERM)
                broker.communicate()


def _guide(broker: "subprocess.Popen[str]", log: Path, seconds: float | None) -> int:
    assert broker.stdout is not None
    # The broker prints a line for AMQP and for its console; fewer lines: it has ended.
    urls = [line.removeprefix(READY).strip() for line in islice(broker.stdout, 2)]
    if len(urls) < 2:
        return _print_end("did not start", log)
    amqp, console = sorted(urls)  # amqp:// before http://
    text, broker_at = tour_text(console, amqp, f"leveret ctl --url {amqp}"), urlsplit(amqp)
    assert broker_at.hostname is not None and broker_at.port is not None
    status = EXIT_OK
    try:
        trio.run(_run_clients, text, broker_at.hostname, broker_at.port, seconds)
    except* OSError:
        status = _print_end("ended", log)
    return status


async def _run_clients(tour: str, host: str, port: int, seconds: float | None) -> None:
    """Print the tour, and run the clients until the time is over or a signal arrives."""
    with (
        trio.move_on_after(float("inf") if seconds is None else seconds),
        trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals,
    ):
        print(tour, flush=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_programs, host, port)
            await anext(signals)
            nursery.cancel_scope.cancel()


def _print_end(what: str, log: Path) -> int:
    print(f"leveret demo: the broker {what}; its log ends with:", file=sys.stderr)
    print("\n".join(log.read_text().splitlines()[-LOG_LINES:]), file=sys.stderr)
    return EXIT_FAILED
