"""Features with resources and a page of their own, which are left out if their package is deleted."""

from importlib.util import find_spec

#: Their names, which are those of the modules in `resources/` and of the pages.
PLUGINS = tuple(name for name in ("leases",) if find_spec(f"{__package__}.resources.{name}") is not None)
