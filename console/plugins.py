"""Features that are left out of the console if their package is deleted."""

from importlib.util import find_spec

#: The names of those that are there: of their modules in `resources/`, and of their pages.
PLUGINS = tuple(name for name in ("leases",) if find_spec(f"{__package__}.resources.{name}") is not None)
