"""Packages that bring resources of their own, and a page: without the package both are missing."""

from importlib.util import find_spec

#: Names of the modules in `resources/`, and of the pages.
PACKAGES = tuple(name for name in ("leases",) if find_spec(f"{__package__}.resources.{name}") is not None)
