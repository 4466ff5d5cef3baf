"""gevent and eventlet replace sockets and threads of the whole process: no loop of trio can run in it."""

import sys

#: Module that patches, its question whether it did, and what is asked of it.
PATCHING = (("gevent.monkey", "is_module_patched", "select"), ("eventlet.patcher", "is_monkey_patched", "select"))


def refuse_green_threads() -> None:
    """Raises: ImportError, with what to do instead, before trio fails with errors that name neither."""
    for name, question, module in PATCHING:
        patcher = sys.modules.get(name)
        if patcher is not None and getattr(patcher, question)(module):
            library = name.partition(".")[0]
            raise ImportError(
                f"{library} has replaced the sockets and threads of this process, in which no broker can run: "
                "start `leveret test-server` beside the tests and connect to it (docs/test-server.md)"
            )
