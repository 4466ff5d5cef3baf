"""What happens to the files before a journal is written to: recover, cut the torn tail, seal what a crash left open."""

from ..disk.files import Files, write_all
from ..disk.segment import Scan, path_of, segments_in
from ..format.block import MODES
from ..format.errors import ForeignDirectory
from .recovery import recover
from .replay import Recovered

#: Message ids that a start leaves out, so that no id or bookmark of a record that was cut means another message; and
#: how many may be used before the journal notes where they are, since not every message is recorded.
IDS_SKIPPED, IDS_UNNOTED_MAX = 1 << 32, 1 << 31


def prepare(files: Files, directory: str, journal_id: bytes, now_ms: int) -> Recovered:
    """Recover; afterwards every segment is sealed and the next record has `next_lsn`. Crashing in it is harmless.

    `now_ms`: wall time.

    Raises: Damaged, ForeignDirectory (segments of another journal): nothing was changed. OSError.
    """
    recovered = recover(files, directory, now_ms=now_ms)
    if recovered.segments and recovered.journal_id != journal_id:
        raise ForeignDirectory(f"{directory}: the segments are those of another journal")
    known = {segment.base_lsn for segment in recovered.segments}
    for base_lsn in reversed(segments_in(files, directory)):
        if base_lsn in known or (known and base_lsn < min(known)):
            break
        files.unlink(path_of(directory, base_lsn))  # it was being made when the power went: nothing is in it
        files.sync_directory(directory)
    if not recovered.segments:
        return recovered
    recovered.next_message_id += IDS_SKIPPED
    newest = recovered.segments[-1]
    handle = files.open(path_of(directory, newest.base_lsn), writable=True)
    try:
        if not newest.sealed:
            files.truncate(handle, newest.size)
            files.sync(handle)  # what was read is durable before a footer claims it
            data = newest.footer(newest.ts_max, MODES.index("commit"))
            write_all(files, handle, data, newest.size)
            files.sync(handle)
            scan = Scan(files, handle, newest.end_lsn, offset=newest.size)
            for block in scan:
                newest.note(block)
            newest.sealed = True
            recovered.next_lsn = newest.end_lsn
        else:
            if files.size(handle) > newest.size:
                files.truncate(handle, newest.size)
            files.sync(handle)  # a broker that was killed before it synced the footer left it to the system
    finally:
        files.close(handle)
    files.sync_directory(directory)  # so it left the name of a segment that it had just begun
    return recovered
