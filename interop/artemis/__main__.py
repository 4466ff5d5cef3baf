"""Scenarios of ring queues and redelivery, on Apache Artemis and on leveret.

    python -m leveret.interop.artemis [--only 'ring-*'] [--write benchmarks/results/artemis.md]

Artemis is fetched from Maven Central once; Java and Maven are needed. Exit code 1: a broker did not behave as in the
table. 2: it could not be run.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..brokers.maven import NotFetched
from ..brokers.peers import durable_leveret
from ..brokers.processes import PeerFailed, unwind_on_sigterm
from .distribution import artemis, configuration_file, fetch
from .leveret_side import Leveret
from .page import page
from .run import Result, run
from .table import BROKERS, Scenario, TableError, broker_xml, read_table


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m leveret.interop.artemis", description=__doc__.splitlines()[0])
    parser.add_argument("--broker", default=",".join(BROKERS), help="by comma (default: both)")
    parser.add_argument("--only", action="append", default=[], metavar="GLOB", help="names of scenarios; repeatable")
    parser.add_argument("--work", type=Path, default=Path(".peers/artemis"), help="directory for Artemis")
    parser.add_argument("--write", type=Path, metavar="FILE", help="the page with the results of both")
    options = parser.parse_args(arguments)
    unwind_on_sigterm()
    try:
        scenarios = [
            scenario
            for scenario in read_table()
            if not options.only or any(fnmatch.fnmatch(scenario.name, glob) for glob in options.only)
        ]
        if not scenarios:
            raise TableError(f"no scenario is called {' or '.join(options.only)}")
        results = [result for name in options.broker.split(",") for result in _run(name, scenarios, options.work)]
    except (NotFetched, PeerFailed, TableError, KeyError) as error:
        print(f"leveret.interop.artemis: {error}", file=sys.stderr)
        return 2
    failed = [result for result in results if result.faults]
    print(f"{len(results)} runs of {len(scenarios)} scenarios, {len(failed)} not as in the table")
    if options.write:
        options.write.write_text(page(scenarios, results))
    return 1 if failed else 0


def _run(name: str, scenarios: list[Scenario], work: Path) -> list[Result]:
    """The results of all scenarios on a fresh broker of this name, with the same broker.xml."""
    configuration = broker_xml(scenarios)
    if name == "artemis":
        home = fetch(work.resolve())
        try:
            from .artemis_side import Artemis
        except ImportError as error:
            raise PeerFailed(f"{error} (pip install leveret[artemis])") from error
        with artemis(home, configuration) as peer:
            file = configuration_file(peer.directory)
            return run(name, lambda: Artemis(peer, file), scenarios, _tell)
    if name != "leveret":
        raise TableError(f"there is no broker {name}")
    with tempfile.TemporaryDirectory(prefix="leveret-artemis-") as directory:
        file = Path(directory) / "broker.xml"
        file.write_text(configuration)
        with durable_leveret("--config", str(file)) as peer:
            return run(name, lambda: Leveret(peer, file), scenarios, _tell)


def _tell(result: Result) -> None:
    print(f"{result.broker:8} {result.scenario}: {'; '.join(result.faults) or 'as in the table'}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
