"""`leveret init`: a first configuration, with every key of the broker, its default and its meaning."""

import argparse
import os
import re
import sys
from collections.abc import Iterator
from textwrap import wrap

from ..settings.rows.broker_keys import KEYS, Key
from ..settings.values import value_text

EXIT_OK, EXIT_FAILED = 0, 1
WIDTH = 100

#: The head of the file. In the whole file a "#" without a space after it comments out a key.
HEAD = """\
# Configuration of a Leveret broker: leveret serve --config THIS-FILE
# Every key of the broker is here with its default, commented out. docs/configuration.md has the rest.
# leveret check THIS-FILE says what is wrong with it; a running broker reads it again when it changes.
"""

#: Omitted tables: even an empty one would change the broker.
WITHOUT = ("system-usage", "cluster", "cluster.tls", "cluster.etcd-tls")

#: Examples of common additions, commented out.
EXAMPLES = """\
# Users. Without one there is guest with the password guest, from this machine only.
#[[user]]
#name = "shop"
#password = "change me"
#tags = ["administrator"]
#[[user.permission]]
#configure = ".*"
#write = ".*"
#read = ".*"

# Rules for queues by the names of their addresses: "*" is one word, "#" any number of them.
#[[address-setting]]
#match = "orders.#"
#max-delivery-attempts = 5
#redelivery-delay = "5s"
#dead-letter-address = "failed"

# A queue that exists from the start.
#[[address]]
#name = "failed"
#[[address.queue]]
#name = "failed"

# Several machines with one broker: docs/cluster.md.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", default="leveret.toml", metavar="FILE", help='leveret.toml; "-": print it')
    parser.add_argument("--data", default=None, metavar="DIR", help="set the directory of the journal in it")


def run(options: argparse.Namespace) -> int:
    """Write the file, unless it exists."""
    text = commented_configuration(options.data)
    try:
        text.encode()
    except UnicodeEncodeError:  # its octets are not text, and a TOML file is
        print("leveret init: --data: is not text in UTF-8", file=sys.stderr)
        return EXIT_FAILED
    if options.file == "-":
        print(text, end="")
        return EXIT_OK
    try:
        os.makedirs(os.path.dirname(options.file) or ".", exist_ok=True)
        with open(options.file, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        if error.filename != options.file:  # its folder
            print(f"leveret init: {options.file}: cannot be written: {error.filename} is a file", file=sys.stderr)
            return EXIT_FAILED
        print(f"leveret init: {options.file}: exists already and is not changed", file=sys.stderr)
        return EXIT_FAILED
    except OSError as error:
        print(f"leveret init: {options.file}: cannot be written: {error.strerror}", file=sys.stderr)
        return EXIT_FAILED
    print(f"{options.file} is written; now: leveret serve --config {options.file}")
    return EXIT_OK


def commented_configuration(data: str | None = None) -> str:
    """The TOML text. Only the directory of the data is set in it, if that is given."""
    given = {} if data is None else {("broker", "data"): value_text(data)}
    tables = ["\n".join(_table(table, keys, given)) for table, keys in KEYS.items() if table not in WITHOUT]
    return "\n".join([HEAD, EXAMPLES, *tables])


def _table(table: str, keys: dict[str, Key], given: dict[tuple[str, str], str]) -> Iterator[str]:
    yield f"[{table}]"
    for name, key in keys.items():
        if key.reason:  # a key without an effect in this broker
            continue
        sentence = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"docs/\1", key.help)
        yield from (f"# {line}" for line in wrap(sentence, WIDTH))
        if (table, name) in given:
            yield f"{name} = {given[table, name]}"
        elif key.default is None:
            yield f"# {name}: by profile" if key.by_profile else f"# {name}: unset"
        else:
            yield f"#{name} = {value_text(_default(key))}"
    yield ""


def _default(key: Key) -> object:
    """The default as it is written in a file: some keys need false for an empty list."""
    value = key.kind.rendered(key.default)
    if value == ():
        try:
            key.kind.read([])
        except ValueError:
            return False
    return value
