"""What packages with their own types of queues add to the loading of files."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..declared.configuration import Configuration
from ..frozen import frozen
from ..queue_types import import_from_packages
from .builder import ConfigurationBuilder

if TYPE_CHECKING:
    from ..foreign.xml_tree import Element

#: Reads an XML file, whose name and root it is given, into a builder.
LoadXml = Callable[[ConfigurationBuilder, str, "Element"], None]


@frozen
class FileHooks:
    """The part of one package.

    `complete(builder)`: check and complete the queues of a configuration without faults. `lint(configuration,
    logged_vhosts)`: warnings about it; `logged_vhosts`: virtual hosts whose logged topics a file lists. `xml()`: roots
    of its XML files, and the function that reads one of them.
    """

    complete: Callable[[ConfigurationBuilder], None]
    lint: Callable[[Configuration, Iterable[str]], Iterable[str]]
    xml: Callable[[], tuple[Iterable[str], LoadXml]]


#: Packages add their parts when they are imported.
FILE_HOOKS: list[FileHooks] = []


def xml_formats() -> dict[str, LoadXml]:
    """Root of an XML file -> the function that reads it, of all packages."""
    formats = [hooks.xml() for hooks in FILE_HOOKS]
    return {root: load for roots, load in formats for root in roots}


import_from_packages("file_hooks")
