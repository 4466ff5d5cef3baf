"""`leveret check`: check configuration files as `leveret serve` would. Source: interfaces page."""

import argparse
import sys
from typing import TYPE_CHECKING

from ..settings import Configuration
from ..settings.faults import in_order
from ..settings.printable import printable, printable_lines
from .configuration_files import EXIT_UNUSABLE, addresses_of, configured_at, console_addresses, load, load_definitions
from .tls_arguments import add_tls_arguments, context_of

if TYPE_CHECKING:
    from ..serving.tls_files import TlsFiles

EXIT_OK = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--strict", action="store_true", help="exit 2 for a warning, too")
    parser.add_argument("--cluster", action="store_true", help="warn of what differs from the cluster that runs")
    parser.add_argument(
        "--url", default=None, help="with --cluster: amqp[s]://USER:PASSWORD@HOST:PORT of any node of it"
    )
    add_tls_arguments(parser)


def run(options: argparse.Namespace) -> int:
    from ..configured.host_capacity import fitted_to_host
    from ..serving.tls_files import load_tls

    configuration, faults = load(options.files)
    configuration = fitted_to_host(configuration, configuration.broker.data)
    tls = load_tls(configuration)
    _, problems = addresses_of(configuration.broker.listen, configuration)
    origin = configured_at(configuration, "listen")
    faults += [*tls.faults, *(f"{origin}: listen: {problem}" for problem in problems)]
    faults += console_addresses(None, configuration)[1]
    wrong, suspicious = _check_definitions(configuration, is_sound=not faults)
    faults += wrong
    if configuration.is_clustered and not faults:
        from ..serving.cluster_files import load_cluster

        files, faults, more = load_cluster(configuration)
        suspicious += more
        if options.cluster and files is not None:
            found, failure = _differences(configuration, tls, files.secret, options)
            if failure:
                print(f"leveret check: {printable_lines(failure)}", file=sys.stderr)
                return EXIT_UNUSABLE
            suspicious += found
    elif options.cluster and not faults:
        faults = ["leveret: [cluster] is missing: there is no cluster to compare with"]
    warnings = in_order([*configuration.warnings, *tls.warnings, *suspicious], options.files)
    if faults:
        print("\n".join(map(printable, in_order(faults, options.files))))
        return EXIT_UNUSABLE
    for warning in warnings:
        print(printable(f"warning: {warning}"))
    if warnings and options.strict:
        return EXIT_UNUSABLE
    print("ok")
    return EXIT_OK


def _differences(
    configuration: Configuration, tls: "TlsFiles", secret: bytes, options: argparse.Namespace
) -> tuple[list[str], str]:
    """The differences from the running cluster, found by keyed digests; and the reason if they are unknown."""
    from ..serving.shared_configuration import SharedConfiguration
    from .control_client import DEFAULT_URL, ControlFailed, request

    shared = SharedConfiguration(secret, configuration, tls)
    own = {"node": configuration.cluster.node, "fingerprint": shared.fingerprint, "parts": shared.parts}
    arguments = {"action": "differences", "parts": own}
    try:
        answer = request(options.url or DEFAULT_URL, "cluster", arguments, context=context_of(options))
        return [f"differs from node {answer['leader']}, which leads: {one}" for one in answer["differences"]], ""
    except ControlFailed as error:
        return [], str(error)
    except (LookupError, TypeError):  # from a broker of another version
        return [], "the answer is not one that this program understands"


def _check_definitions(configuration: Configuration, *, is_sound: bool) -> tuple[list[str], list[str]]:
    """Faults and warnings of the file that `definitions` names. Unless `is_sound`, only its syntax is checked."""
    from ..operator.definitions import faults_and_remarks
    from ..operator.definitions_reader import DefinitionsFault

    file, faults = load_definitions(configuration)
    if file is None or not is_sound:
        return faults, []
    try:
        wrong, remarks = faults_and_remarks(configuration, file.value)
    except DefinitionsFault as fault:
        return file.placed(fault.faults), []
    if configuration.broker.definitions_all_or_nothing:
        return file.placed(wrong), file.placed(remarks)
    return [], file.placed([*(f"{one} (left out)" for one in wrong), *remarks])
