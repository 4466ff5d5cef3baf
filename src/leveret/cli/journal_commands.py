"""`leveret journal verify`, `repair` and `cat`: commands for a journal without a broker. Source: interfaces page."""

import argparse
import base64
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from math import isfinite

from ..engine import ContentError, FieldTable, FieldTableError, decode_properties, decode_table
from ..journal import JournalError, JournalReader, Names, Record
from ..journal.disk.directory import find_journal, read_format
from ..journal.format.errors import BadRecord
from ..journal.format.heap import (
    decode_bound,
    decode_content,
    decode_declared,
    decode_define,
    decode_head,
    decode_ids_seen,
    decode_runs,
    decode_text,
)
from ..journal.format.record import EXCHANGE, FLAG_NAMES, OBJECT_NAMES, QUEUE, RANGE, REASONS
from ..journal.recording.access_records import fields_without_secrets
from ..journal.recovery.check import Report, verify
from ..journal.recovery.repair import Repaired, repair
from ..settings.printable import printable

EXIT_SOUND, EXIT_TORN, EXIT_DAMAGED = 0, 1, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    check = actions.add_parser("verify", help="check every segment; exit 0 sound, 1 torn tail only, 2 damaged")
    check.add_argument("directory", metavar="DIR")
    check.add_argument("--json", action="store_true", help="print JSON")
    check.set_defaults(action=_verify)
    save = actions.add_parser("repair", help="copy whole blocks to a new journal; exit 0 written, 2 failed")
    save.add_argument("directory", metavar="DIR")
    save.add_argument("--out", required=True, metavar="DIR", help="directory of the new journal, empty or absent")
    save.set_defaults(action=_repair)
    cat = actions.add_parser("cat", help="print records as JSON lines")
    cat.add_argument("directory", metavar="DIR")
    cat.add_argument("--from", dest="from_lsn", type=int, default=0, metavar="LSN", help="begin with this record")
    cat.add_argument("--all", action="store_true", help="also records that are not known to be durable")
    cat.add_argument("--bodies", action="store_true", help="with properties and bodies")
    cat.set_defaults(action=_cat)


def run(options: argparse.Namespace) -> int:
    """Run the action. A fault of the directory is one sentence on stderr, with exit code 2."""
    try:
        return int(options.action(options))
    except BrokenPipeError:
        raise
    except (JournalError, OSError) as error:
        print(printable(f"leveret journal: {error}"), file=sys.stderr)
        return EXIT_DAMAGED


def _verify(options: argparse.Namespace) -> int:
    directory = find_journal(options.directory)
    report = verify(directory)
    code = EXIT_DAMAGED if report.faults else EXIT_TORN if report.torn_bytes else EXIT_SOUND
    if options.json:
        print(json.dumps(asdict(report)))
    else:
        print("\n".join(map(printable, _report_lines(report))))
    return code


def _report_lines(report: Report) -> Iterator[str]:
    yield (
        f"{report.segments} segments, {report.blocks} blocks, {report.records} records, "
        f"LSN {report.first_lsn} to {report.next_lsn - 1}"
    )
    for first, after in report.gaps:
        yield f"note: an earlier repair lost records {first} to {after - 1}"
    for fault in report.faults:
        yield f"damaged: {fault}"
    if report.torn_bytes:
        yield (
            f"torn tail: {report.torn_bytes} octets at the end of segment {report.torn_segment} were being written "
            "when the broker died; no block says that they were synced to disk"
        )
    if not report.faults and not report.torn_bytes:
        yield "sound"


def _repair(options: argparse.Namespace) -> int:
    done: Repaired = repair(find_journal(options.directory), options.out)
    print(printable(f"{done.records} records saved to {options.out}"))
    for first, after in done.lost:
        print(f"lost: records {first} to {after - 1}")
    if done.torn_bytes:
        print(f"cut: {done.torn_bytes} octets of torn tail")
    return EXIT_SOUND


def _cat(options: argparse.Namespace) -> int:
    directory = find_journal(options.directory)
    read_format(directory)
    reader = JournalReader(directory)
    for lsn, record in reader.records(options.from_lsn, trust_open=options.all):
        try:
            print(json.dumps(record_fields(lsn, record, reader.names, options.bodies)))
        except BadRecord as error:
            raise JournalError(f"record {lsn}: {error}") from error
    return EXIT_SOUND


def record_fields(lsn: int, record: Record, names: Names, with_bodies: bool = False) -> dict[str, object]:
    """A record as JSON, without empty fields, and with names beside ids."""
    fields: dict[str, object] = {"lsn": lsn, "kind": record.name, "ts_us": record.ts_us}
    for name in ("msg_id", "arg", "priority", "attempt", "size", "link", "consumer_id", "conn_id"):
        if value := getattr(record, name):
            fields[name] = value
    if record.flags:
        fields["flags"] = [word for bit, word in FLAG_NAMES.items() if record.flags & bit]
    if record.reason:
        fields["reason"] = REASONS[record.reason] if record.reason < len(REASONS) else record.reason
    for name, id_ in (("exchange", record.address_id), ("queue", record.queue_id)):
        if id_:
            fields[f"{name}_id"], fields[name] = id_, names.text(id_)
            fields.setdefault("vhost", names.vhost_text(id_))
    if record.heap:
        fields.update(_heap_fields(record, names, with_bodies))
    return fields


def _heap_fields(record: Record, names: Names, with_bodies: bool) -> dict[str, object]:
    heap, name = record.heap, record.name
    if name in ("published", "moved"):
        return _content_fields(heap, names, with_bodies)
    if name == "define":
        define = decode_define(heap)
        return {
            "object": OBJECT_NAMES.get(define.object_type, define.object_type),
            "name": define.name,
            "vhost_id": define.vhost_id,
        }
    if name in ("declared", "undeclared"):
        declared = decode_declared(heap)
        what = OBJECT_NAMES.get(declared.object_type, declared.object_type)
        properties = [
            word
            for bit, word in ((1, "durable"), (2, "auto-delete"), (4, "internal"), (8, "exclusive"))
            if declared.properties & bit
        ]
        return {
            "object": what,
            "properties": properties,
            "type": declared.type,
            "arguments": (
                _arguments(declared.arguments)
                if declared.object_type in (EXCHANGE, QUEUE)
                else fields_without_secrets(declared.arguments)
            ),
        }
    if name in ("bound", "unbound"):
        bound = decode_bound(heap)
        return {
            "object": OBJECT_NAMES.get(bound.object_type, bound.object_type),
            "target": names.text(bound.target_id),
            "routing_key": _text(bound.routing_key),
            "arguments": _arguments(bound.arguments),
        }
    if name == "head":
        head = decode_head(heap)
        return {"journal_id": head.journal_id.hex(), "checkpoint": head.checkpoint_begin, "program": head.program}
    if name == "ids_seen":
        seen = decode_ids_seen(heap)
        ids = [{"id": id_, "msg_id": message_id} for id_, message_id in seen.ids]
        return {"vhost": names.text(record.arg), "address": seen.address, "id_cache_size": seen.size, "ids": ids}
    if name in ("snapshot", "footer", "enqueued") or name.startswith("kind "):
        return {"heap_octets": len(heap)}
    if record.flags & RANGE:
        return {"runs": decode_runs(heap)}
    return {"text": decode_text(heap)}


def _content_fields(heap: bytes, names: Names, with_bodies: bool) -> dict[str, object]:
    content = decode_content(heap)
    fields: dict[str, object] = {
        "routing_key": _text(content.routing_key),
        "queues": [names.text(id_) for id_ in content.queue_ids if id_],
    }
    if 0 in content.queue_ids:
        fields["logged"] = True
    if content.expires_ms:
        fields["expires_ms"] = content.expires_ms
    if content.cause_id:
        fields["cause_id"] = content.cause_id
    if with_bodies:
        end = 4 + int.from_bytes(content.content[:4], "big")
        try:
            properties = decode_properties(content.content[4:end])
        except ContentError:
            properties = {}
        fields["properties"] = {
            name: _text(value) if isinstance(value, bytes) else _table(value) if isinstance(value, dict) else value
            for name, value in properties.items()
        }
        body = content.content[end:]
        try:
            fields["body"] = body.decode()
        except UnicodeDecodeError:
            fields["body_base64"] = base64.b64encode(body).decode()
    return fields


def _arguments(data: bytes) -> object:
    if not data:
        return {}
    try:
        return _table(decode_table(data)[0])
    except (FieldTableError, IndexError):
        return {"?": data.hex()}


def _table(table: FieldTable) -> dict[str, object]:
    return {_text(name.encode("utf-8", "surrogateescape")): _value(field.value) for name, field in table.items()}


def _value(value: object) -> object:
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, dict):
        return _table(value)
    if isinstance(value, list):
        return [_value(item.value) for item in value]
    if isinstance(value, float) and not isfinite(value):  # JSON has none: null, as in the broker's lists
        return None
    return value


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
