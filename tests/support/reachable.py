"""What belongs to an object: all that can be reached from it, and nothing that other tests left in the process."""

import gc
import logging
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType

#: Shared by the whole process: following them leads to the objects of other tests.
SHARED = (type, ModuleType, CodeType, FrameType, logging.Logger, logging.Handler)
FUNCTIONS = (FunctionType, BuiltinFunctionType)


def reachable(*roots: object) -> Iterator[object]:
    """Each object that the collector knows and that can be reached from `roots`, once.

    Not followed: classes, modules, loggers, and the globals of functions.
    """
    seen: set[int] = set()
    level = list(roots)
    while level:
        new = {
            id(one): one for one in level if id(one) not in seen and gc.is_tracked(one) and not isinstance(one, SHARED)
        }
        seen.update(new)
        yield from new.values()
        functions = [one for one in new.values() if isinstance(one, FUNCTIONS)]
        level = gc.get_referents(*(one for one in new.values() if not isinstance(one, FUNCTIONS)))
        for one in functions:
            level += (one.__closure__, one.__defaults__) if isinstance(one, FunctionType) else (one.__self__,)
