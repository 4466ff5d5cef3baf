"""Loading of configuration files: each file's format is recognised by its content, all faults are reported together."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from .declared.configuration import Configuration
from .faults import Fault, Origin

#: Maximum characters of a file; a longer one is a mistake or an attack.
SIZE_MAX = 16 * 1024**2


def load_configuration(
    files: Iterable[tuple[str, str]],
    environment: Mapping[str, str] = MappingProxyType({}),
    fetch: Callable[[str, str], tuple[str, str]] | None = None,
) -> tuple[Configuration, list[Fault]]:
    """Read (name, text) of files in order: TOML, XML of Artemis, HornetQ, ActiveMQ 5 or AMPS, broker-properties.

    Later files override earlier ones key by key; an address-setting's match may be in one file only, except that
    broker-properties override everything else, as in Artemis.
    Args:
        environment: variables that XML files may name as `${NAME}`.
        fetch: (file, path that it includes) -> name and text of the file there; raises ValueError. None: no file may.
    Returns: the configuration and all faults, in order of file and line; with faults it must not be used.
    """
    given = list(files)
    if not given:  # a broker without files saves the loaders: a twentieth of its start-up time
        return Configuration(), []
    from .files.builder import ConfigurationBuilder
    from .files.finishing import finish
    from .files.other_formats import other_format
    from .files.toml_loader import begins_as_toml, load_toml

    builder = ConfigurationBuilder(environment, fetch)
    broker_properties: list[tuple[str, str]] = []  # they override all other files
    for name, text in given:
        content = text.removeprefix("\ufeff")
        if len(content) > SIZE_MAX:
            builder.fault(Origin(name, 1), "FILE", f"is longer than {SIZE_MAX} characters")
        elif content.lstrip()[:1] == "<":
            from .foreign.xml_loader import load_xml  # without XML, saves a seventh of the start-up time

            load_xml(builder, name, content)
        elif problem := other_format(content):
            builder.fault(Origin(name, 1), "FILE", problem)
        elif not begins_as_toml(content) and _is_properties(content):
            broker_properties.append((name, content))
        else:
            load_toml(builder, name, content)
    for name, content in broker_properties:
        from .foreign.properties import load_properties

        load_properties(builder, name, content)
    return finish(builder)


def _is_properties(content: str) -> bool:
    from .foreign.properties import is_properties

    return is_properties(content)
