"""Names and types of what RabbitMQ's HTTP API showed, looked for in what ours shows."""

from collections.abc import Iterator
from typing import Any

#: What RabbitMQ shows and Leveret does not; a path is of names, lists are entered without one.
ABSENT = {
    "of plug-ins that are not here": {"protocol", "internal_purpose", "auth_mechanism_ssl"},
    "the disk is the journal's, whose figures are in `leveret ctl status`": {
        f"io_{what}"
        for what in (
            "read_count",
            "read_bytes",
            "read_avg_time",
            "write_count",
            "write_bytes",
            "write_avg_time",
            "sync_count",
            "sync_avg_time",
            "seek_count",
            "seek_avg_time",
            "reopen_count",
        )
    },
    "only while it is idle": {"idle_since"},
    "the levels of a queue with priorities are not counted one by one": {"priority_lengths"},
    "Erlang's own stores": {
        "mnesia_ram_tx_count",
        "mnesia_disk_tx_count",
        "msg_store_read_count",
        "msg_store_write_count",
        "queue_index_write_count",
        "queue_index_read_count",
        "gc_num_details",
        "gc_bytes_reclaimed_details",
        "context_switches_details",
        "mem_used_details",
        "fd_used_details",
        "sockets_used_details",
        "proc_used_details",
        "disk_free_details",
        "ra_log_wal",
        "ra_log_segment_writer",
    },
}
_LEFT_OUT = {name for names in ABSENT.values() for name in (*names, *(f"{one}_details" for one in names))}
#: Values that may be of either type.
_EITHER = {"head_message_timestamp", "consumer_utilisation", "consumer_capacity"}
#: Objects whose names are made up by people.
_OPEN = {"arguments", "client_properties", "definition", "effective_policy_definition", "limits", "socket_opts"}
_OPEN |= {"value", "ra_open_file_metrics", "metrics_gc_queue_length", "headers", "open_files", "readers"}
_OPEN |= {"cluster_state", "cowboy_opts"}


def missing(theirs: Any, ours: Any, path: str) -> Iterator[str]:
    """Each name of theirs that ours lacks, or has with a value of another type."""
    if isinstance(theirs, list):
        if not isinstance(ours, list):
            yield f"{path}: {type(ours).__name__} for a list"
            return
        rows = [one for one in theirs if isinstance(one, dict)]
        if rows and not any(isinstance(one, dict) for one in ours):
            yield f"{path}: no entries"
        else:
            yield from _missing_in_rows(rows, [one for one in ours if isinstance(one, dict)], path)
    elif isinstance(theirs, dict):
        if not isinstance(ours, dict):
            yield f"{path}: {type(ours).__name__} for an object"
            return
        for name, value in theirs.items():
            if name in _LEFT_OUT:
                continue
            if name not in ours:
                yield f"{path}.{name}: absent"
            elif name in _OPEN:
                if not isinstance(ours[name], dict | list | str | int):
                    yield f"{path}.{name}: {type(ours[name]).__name__}"
            else:
                yield from missing(value, ours[name], f"{path}.{name}")
    elif theirs is not None and ours is not None and path.rpartition(".")[2] not in _EITHER:
        is_number = isinstance(theirs, int | float) and not isinstance(theirs, bool)
        wanted: Any = (int, float) if isinstance(theirs, float) and is_number else type(theirs)
        if not isinstance(ours, wanted) or isinstance(ours, bool) != isinstance(theirs, bool):
            yield f"{path}: {ours!r} for {theirs!r}"


def _missing_in_rows(theirs: list[Any], ours: list[Any], path: str) -> Iterator[str]:
    """A name that all of their rows have all of ours have; types are those of the first that has it."""
    for row in ours:
        alike = [one for one in theirs if one.get("type") == row.get("type")]
        common = set.intersection(*(set(one) for one in alike)) if alike else set()
        yield from missing({name: alike[0][name] for name in common}, row, path)
