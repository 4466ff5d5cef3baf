"""Harm to journals on real files, and what a lake says of it."""

import json
from pathlib import Path
from typing import Any

from pyarrow import parquet

from leveret.journal.disk.files import REAL
from leveret.journal.disk.segment import opened
from leveret.journal.disk.segment_scan import SegmentScan
from leveret.pipeline.lake.lake import committed_files


def blocks_of(journal: Path, base: int) -> list[tuple[int, int, int]]:
    """Offset, first record and behind the last of each block of a segment."""
    with opened(REAL, str(journal), base) as handle:
        return [(one.offset, one.header.base_lsn, one.end_lsn) for one in SegmentScan(REAL, handle, base)]


def harm(journal: Path, base: int, offset: int) -> None:
    """Change an octet of the block at this offset."""
    (file,) = journal.glob(f"*{base:020d}.log")
    data = bytearray(file.read_bytes())
    data[offset + 40] ^= 1
    file.write_bytes(data)


def holes_in(lake: Path) -> list[dict[str, Any]]:
    """The lake's rows, in order."""
    files = committed_files(str(lake), "holes")
    found = [row for path in files for row in parquet.ParquetFile(path).read().to_pylist()]
    return sorted(found, key=lambda row: row["first_lsn"])


def as_node_of_a_cluster(data: Path) -> None:
    """Write into the format of a journal what it has in a copy of a cluster's journal."""
    path = data / "journal" / "format"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2, "needs": [], "id": "ab" * 16}))
