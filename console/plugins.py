"""Features that are left out of the console if their package is deleted."""

from importlib.util import find_spec

#: The features that are installed, by the names of their modules in `resources/`, which their pages have, too.
PLUGINS = tuple(name for name in ("leases",) if find_spec(f"{__package__}.resources.{name}") is not None)
