"""Leased queues in configuration files: completed, checked, and read from the XML files of AMPS."""

from collections.abc import Iterable

from ..files.file_hooks import FILE_HOOKS, FileHooks, LoadXml
from .checks import complete, lint_of_leases


def _xml() -> tuple[Iterable[str], LoadXml]:
    from .amps_xml import AMPS_ROOTS, load_amps  # TOML files need no parser of XML

    return AMPS_ROOTS, load_amps


FILE_HOOKS.append(FileHooks(complete, lint_of_leases, _xml))
