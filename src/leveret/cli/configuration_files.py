"""Configuration files as commands read them: their texts, their faults, and the addresses in them."""

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..configured.input_files import open_input
from ..serving.addresses import Address, AddressError, ConsoleAddresses, parse_address
from ..settings import Configuration, load_configuration
from ..settings.faults import Origin, in_order
from ..settings.loopback import is_loopback
from ..settings.printable import printable

if TYPE_CHECKING:
    from ..operator.json_file import JsonFile

#: The exit code of a command that cannot use its files.
EXIT_UNUSABLE = 2
#: Maximum characters of an included file.
INCLUDED_SIZE_MAX = 1024**2


def load(names: Sequence[str]) -> tuple[Configuration, list[str]]:
    """The configuration in files, and a line for each fault, including those that only a broker finds."""
    return load_with_texts(names)[:2]


def load_with_texts(names: Sequence[str]) -> tuple[Configuration, list[str], list[tuple[str, str]]]:
    """Like `load`, with names and texts of the files: a pipe can be read only once."""
    from ..configured.configured import faults_of, suspicious_arguments
    from ..configured.configured_users import readable_passwords

    texts: list[tuple[str, str]] = []
    is_private: dict[str, bool] = {}
    unreadable: list[str] = []
    for name in names:
        try:
            with open(name, encoding="utf-8", opener=open_input) as file:
                texts.append((name, file.read()))
                # Without POSIX modes a file is assumed to be private.
                is_private[name] = os.name != "posix" or not os.fstat(file.fileno()).st_mode & 0o077
        except OSError as error:
            unreadable.append(f"{name}: cannot be read: {error.strerror}")
        except UnicodeDecodeError:
            unreadable.append(f"{name}:1: FILE: is not UTF-8 text")
    configuration, faults = load_configuration(texts, os.environ, _fetch)
    lines = [*map(str, faults), *readable_passwords(configuration, is_private)]
    lines += faults_of(configuration, {str(Origin(fault.file, fault.line)) for fault in faults})
    warnings = (*configuration.warnings, *suspicious_arguments(configuration))
    return replace(configuration, warnings=warnings), in_order([*unreadable, *lines], names), texts


def print_faults(faults: Iterable[str]) -> int:
    """Print why files cannot be used. Returns: the exit code of the command."""
    print("\n".join(map(printable, faults)), file=sys.stderr)
    return EXIT_UNUSABLE


def _fetch(file: str, path: str) -> tuple[str, str]:
    """Name and text of an included file. Raises: ValueError with the fault."""
    name = os.path.normpath(os.path.join(os.path.dirname(file), path))
    try:
        if not os.path.isfile(name):
            raise ValueError("is not a file")
        with open(name, encoding="utf-8") as included:
            content = included.read(INCLUDED_SIZE_MAX + 1)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None
    if len(content) > INCLUDED_SIZE_MAX:
        raise ValueError(f"is longer than {INCLUDED_SIZE_MAX} characters")
    return name, content


def load_definitions(configuration: Configuration) -> "tuple[JsonFile | None, list[str]]":
    """The file that `definitions` names, and its faults. None: the key is unset, or the file cannot be read."""
    name = configuration.broker.definitions
    if name is None:
        return None, []
    from ..operator.json_file import JsonFault, read_json_file

    try:
        return read_json_file(name), []
    except OSError as error:
        return None, [f"{name}: cannot be read: {error.strerror}"]
    except JsonFault as fault:
        return None, [f"{name}:{fault.line}: FILE: {fault}"]


def configured_at(configuration: Configuration, key: str, table: str = "broker") -> str:
    """FILE:LINE of a key."""
    origin = configuration.origins.get((table, key))
    return str(origin) if origin is not None else "leveret"


def addresses_of(
    texts: Sequence[str], configuration: Configuration, *, is_http: bool = False
) -> tuple[list[Address], list[str]]:
    """The addresses to listen on, of AMQP or of HTTP, and their faults."""
    listen: list[Address] = []
    faults: list[str] = []
    for text in texts:
        try:
            address = parse_address(text, is_http=is_http)
        except AddressError as error:
            faults.append(str(error))
            continue
        listen.append(address)
        is_inside = address.path or is_loopback(address.host)
        if address.is_tls and configuration.tls.certificate is None:
            faults.append(f"{text!r}: TLS needs a certificate: [tls] certificate is missing")
        elif is_http and not address.is_tls and not is_inside and not configuration.management.plain_outside:
            faults.append(
                f"{text!r}: is outside loopback, where passwords could be read: expected https:// with [tls], "
                "127.0.0.1, or plain-outside = true in [management]"
            )
    return listen, faults


def console_addresses(given: str | None, configuration: Configuration) -> tuple[ConsoleAddresses | None, list[str]]:
    """The addresses of the console, and their faults; None if it is not installed, or off.

    `given`: from the command line, in place of the configuration's.
    """
    from importlib.util import find_spec

    origins = [origin for (table, _), origin in configuration.origins.items() if table == "management"]
    texts = configuration.management.listen if given is None else (given,)
    if tuple(texts) == ("off",) or (given is None and not configuration.management.enabled):
        return None, []
    if find_spec("h11") is None:
        where = "leveret: --management" if given is not None else f"{origins[0]}: management" if origins else None
        needs = 'needs the console, expected: pip install "leveret[console]"'
        return None, [] if where is None else [f"{where}: {needs}"]
    file = configured_at(configuration, "listen", "management")
    where = "leveret: --management:" if given is not None else f"{file}: listen:"
    listen, faults = addresses_of(texts, configuration, is_http=True)
    text = configuration.management.metrics
    in_file = f"{configured_at(configuration, 'metrics', 'management')}: metrics:"
    metrics, more = addresses_of(() if text == "off" else (text,), configuration, is_http=True)
    is_named = given is not None or ("management", "listen") in configuration.explicit
    addresses = ConsoleAddresses(listen, is_named, metrics, ("management", "metrics") in configuration.explicit)
    return addresses, [*(f"{where} {fault}" for fault in faults), *(f"{in_file} {fault}" for fault in more)]
