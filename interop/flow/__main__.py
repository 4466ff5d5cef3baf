"""Flow control as real clients see it: every row by every client, over sockets, against fresh brokers.

    python -m leveret.interop.flow [--client pika,amqp091-go] [--only E01,E05]
        [--write benchmarks/results/flow-clients.md]

Clients whose toolchain is not on this machine are skipped; the summary says why. Exit code 1: a row failed with a
client. 2: nothing could be run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from ..brokers.processes import PeerFailed, unwind_on_sigterm
from ..running.driven_clients import driven_clients
from .page import page
from .trial import DIFFERS, LACKS, SEEN, Result, rows, run

#: The clients on the page.
USUAL = ("pika", "aio-pika", "amqp091-go", "amqp-client", "amqplib")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m leveret.interop.flow",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--client", default=",".join(USUAL), help="by comma (default: %(default)s)")
    parser.add_argument("--only", default="", help="names of rows, by comma")
    parser.add_argument("--work", type=Path, default=Path(".peers/drivers"), help="where drivers are built")
    parser.add_argument("--write", type=Path, metavar="FILE", help="the page with what each client saw")
    options = parser.parse_args(arguments)
    unwind_on_sigterm()
    try:
        chosen = rows([name for name in options.only.split(",") if name])
        with ExitStack() as stack:
            clients, skipped = driven_clients(options.client.split(","), options.work, stack, log="{}-flow.log")
            results = run(chosen, clients, _tell)
            hellos = [client.hello for client in clients.values()]
    except (PeerFailed, ValueError) as error:
        print(f"leveret.interop.flow: {error}", file=sys.stderr)
        return 2
    counts = {verdict: sum(one.verdict == verdict for one in results) for verdict in (SEEN, DIFFERS, LACKS)}
    print(f"{counts[SEEN]} as the rows say, {counts[DIFFERS]} not, {counts[LACKS]} that the client has no call for")
    for name, why in skipped.items():
        print(f"skipped {name}: {why}")
    if options.write:
        options.write.write_text(page(chosen, results, hellos, skipped))
    return 1 if counts[DIFFERS] else 0


def _tell(result: Result) -> None:
    print(f"{result.row:5} {result.client}: {result.verdict}: {result.what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
