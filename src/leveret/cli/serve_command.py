"""`leveret serve`: run a broker. Source: interfaces page."""

import argparse
import logging
import sys
from dataclasses import replace

from ..settings import Configuration
from ..settings.faults import in_order
from .configuration_files import addresses_of, configured_at, console_addresses, load, load_definitions, print_faults

LOG_LEVELS = ("debug", "info", "warning", "error")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", action="append", default=[], metavar="FILE", help="configuration (TOML or XML); repeatable"
    )
    parser.add_argument(
        "--listen",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="HOST:PORT, amqps://HOST:PORT or unix:PATH; repeatable",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--data", metavar="DIR", help="directory of the journal (default: ./leveret-data)")
    where.add_argument("--memory", action="store_true", help="keep everything in memory")
    parser.add_argument("--profile", metavar="NAME", help="RabbitMQ version to follow (default: leveret)")
    parser.add_argument(
        "--management", metavar="ADDRESS", help="where the console listens, or off (default: 127.0.0.1:15672)"
    )
    parser.add_argument("--log-level", choices=LOG_LEVELS, default="info")
    parser.add_argument("--force", action="store_true", help="start though the log lacks the recovery point of a queue")
    parser.add_argument(
        "--review-queues", action="store_true", help="build leased queues from their recovery points once more"
    )
    parser.add_argument(
        "--debug", action="store_true", help="check the engine every second, and stop when it contradicts itself"
    )


def run(options: argparse.Namespace) -> int:
    from tempfile import gettempdir

    from ..configured.host_capacity import fitted_to_host
    from ..serving.app import serve  # large, and only needed to start a broker
    from ..serving.file_watch import FileWatch, marks_of
    from ..serving.logs import LogTail, PrintableFormatter
    from ..serving.options import ServeOptions
    from ..serving.tls_files import load_tls

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    tail = LogTail()
    tail.setFormatter(PrintableFormatter("%(message)s"))
    logging.basicConfig(level=options.log_level.upper(), handlers=[handler, tail])

    def read() -> tuple[Configuration, list[str]]:
        configuration, faults = load(options.config)
        if options.profile is not None:
            configuration, more = _with_profile(configuration, options.profile)
            faults += more
        return fitted_to_host(configuration, data_of(configuration) or gettempdir()), faults

    def data_of(configuration: Configuration) -> str | None:
        return None if options.memory else options.data or configuration.broker.data

    watch = FileWatch(marks_of(options.config)) if options.config else None  # taken before reading
    configuration, faults = read()
    if watch is not None:
        watch.follow(marks_of(configuration.included))
    tls = load_tls(configuration)
    console, more = console_addresses(options.management, configuration)
    faults += more
    listen, problems = addresses_of(options.listen or configuration.broker.listen, configuration)
    where = "leveret: --listen" if options.listen else f"{configured_at(configuration, 'listen')}: listen:"
    faults += [*tls.faults, *(f"{where} {problem}" for problem in problems)]
    definitions, more = load_definitions(configuration)
    faults += more
    if options.memory and configuration.is_clustered:
        faults.append("leveret: --memory: a node of a cluster has what is confirmed on disk, expected --data DIR")
    if faults:
        return print_faults(in_order(faults, options.config))
    data = data_of(configuration)
    again = read if options.config else None
    wanted = ServeOptions(configuration, listen, data, again, watch, tls, definitions, console)
    wanted.log_lines = tail.lines
    wanted.is_forced, wanted.rebuilds_queues = options.force, options.review_queues
    wanted.checks_invariants = options.debug
    return serve(wanted)


def _with_profile(configuration: Configuration, profile: str) -> tuple[Configuration, list[str]]:
    from ..settings.rows.broker_keys import KEYS

    try:
        explicit = {**configuration.explicit, ("broker", "profile"): KEYS["broker"]["profile"].kind.read(profile)}
    except ValueError as error:
        return configuration, [f"leveret: --profile {profile}: expected {error}"]
    return replace(configuration, explicit=explicit), []
