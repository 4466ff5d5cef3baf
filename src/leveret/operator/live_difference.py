"""The changes that other configuration files would make in the running broker, including those of existing queues.

Source: address-settings page 3.8.
"""

import os
from collections.abc import Iterator
from typing import Any

from ..configured.configured import ConfiguredObjects, faults_of
from ..engine import Queue, plain_arguments
from ..settings import Configuration, Policies, load_configuration, settings_of_arguments
from ..settings.difference import differences
from ..settings.explain import Explained, argument_rows, explain_rows
from ..settings.lifetime import AT_CREATION, LIVE, WITHOUT_MEANING
from ..settings.rows.address_settings import BY_KEY
from ..settings.values import in_vhost, value_text
from .command_error import CommandError
from .steps import Steps

#: Maximum queues that are listed, each with all changes; the others are counted.
LISTED_MAX = 1000
#: Queues that are compared between two turns.
STEP_QUEUES = 50


def live_difference(objects: ConfiguredObjects, new: Configuration, policies: Policies) -> Steps:
    """The answer of the command `diff`.

    Args: policies: all policies with the new configuration.
    Returns: {"changes": [text], "queues": [{"queue", "vhost", "changes": [text]}], "more": number of other queues}.
    """
    changes = differences(objects.configuration, new)
    listed = {(change.what, change.how.partition(": ")[0]) for change in changes}  # changes of declared queues
    found: list[dict[str, Any]] = []
    more = 0
    broker = objects.broker
    for count, queue in enumerate(list(broker.virtual_hosts.queues()), 1):
        lines = [] if queue.deleted else list(_changes_of(objects, queue, new, policies, listed))
        if lines and len(found) < LISTED_MAX:
            found.append({"queue": queue.name, "vhost": queue.vhost_name, "changes": lines})
        elif lines:
            more += 1
        if count % STEP_QUEUES == 0:
            yield
    return {"changes": [str(change) for change in changes], "queues": found, "more": more}


def loaded(files: object, included: object) -> Configuration:
    """The configuration in files.

    Args:
        files: [[name, text], ...], as for `serve --config`.
        included: {name: text} of the files that these include.
    Raises: CommandError: the arguments have another shape, or the files have faults, one a line.
    """
    if not isinstance(files, list) or not all(_is_file(one) for one in files):
        raise CommandError("files: expected a list of names and texts")
    texts = included if isinstance(included, dict) else {}

    def fetch(file: str, path: str) -> tuple[str, str]:
        name = os.path.normpath(os.path.join(os.path.dirname(file), path))
        if not isinstance(texts.get(name), str):
            raise ValueError("was not sent")
        return name, texts[name]

    configuration, faults = load_configuration([(name, text) for name, text in files], {}, fetch)
    lines = [str(fault) for fault in faults] or faults_of(configuration)
    if lines:
        raise CommandError("\n".join(lines))
    return configuration


def _is_file(one: object) -> bool:
    return isinstance(one, list) and len(one) == 2 and all(isinstance(part, str) for part in one)


def _changes_of(
    objects: ConfiguredObjects, queue: Queue, new: Configuration, policies: Policies, listed: set[tuple[str, str]]
) -> Iterator[str]:
    """A line for each setting or argument that would change, unless it is `listed`."""
    arguments = plain_arguments(queue.arguments)
    own = settings_of_arguments(arguments)
    address, vhost = queue.address, queue.vhost_name
    before = queue.declaration.layer
    after = policies.of_queue(queue.name, queue.type, vhost).layer(arguments)
    old_rows = explain_rows(objects.broker.context.settings, address, vhost, own, None, before, queue.name)
    new_rows = explain_rows(new.repository, address, vhost, own, None, after, queue.name)
    old_values = {row.name: row.value for row in (*old_rows, *argument_rows(arguments, {}, before))}
    what = f"queue {queue.name!r}{in_vhost(vhost)}"
    for row in (*new_rows, *argument_rows(arguments, {}, after)):
        old = old_values.pop(row.name, None)
        if (what, row.name) not in listed:
            yield from _change_line(old, row)
    for name, value in old_values.items():
        yield from _change_line(value, Explained(name, None, "no longer set"))


def _change_line(old: object, row: Explained) -> Iterator[str]:
    field = BY_KEY.get(row.name)
    acts = LIVE if field is None else field.acts
    if old != row.value and acts not in (AT_CREATION, WITHOUT_MEANING):
        yield f"{row.name}: {_text(old)} -> {_text(row.value)} ({acts.value}), {row.rule}"


def _text(value: object) -> str:
    return "unset" if value is None or value == "" else value_text(value)
