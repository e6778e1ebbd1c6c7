"""LLVM in a process of its own.

Note [Isolation]
LLVM as llvmlite ships it has its assertions on, and one that fails aborts the process. Its loop vectoriser has two cost
models and asserts that they choose the same width; they do not always. `select (not c), x, false` of i1 costs one
instruction in the old model, which sees a logical and; the new one turns it into `select c, false, x`, which it prices
as a select of masks. Simplifications make such selects out of any `!c && x`, so there is no code to avoid. Therefore a
helper process, started at the first compilation and kept, makes the machine code. If it dies, a new one compiles the
same text without vectorisers. The process of the user only loads what comes back.

The helper ends when its standard input closes. A forked child starts its own. An interrupt ends it, since the answer
that is under way would be taken for the next one's.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from typing import BinaryIO, cast

from ...errors import InternalError
from . import codegen
from .codegen import Effort

_START = "import runpy, sys; sys.path[:] = sys.argv[2:]; runpy.run_path(sys.argv[1], run_name='__main__')"


class _Helper:
    """A process that compiles. The caller holds `COMPILING`."""

    def __init__(self) -> None:
        paths = [path for path in sys.path if isinstance(path, str)]
        self.owner = os.getpid()
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _START, codegen.__file__, *paths],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the user's process
        )

    def hear(self) -> tuple[bytes, bytes]:
        return codegen.hear(cast(BinaryIO, self.process.stdout))

    def compile(self, text: str, effort: Effort) -> tuple[bytes, bytes]:
        codegen.ask(cast(BinaryIO, self.process.stdin), text, effort)
        return self.hear()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


class _State:
    helper: _Helper | None = None
    available = True  # False once a helper could not be started
    inherited: list[_Helper] = []  # noqa: RUF012 of the processes this one was forked from


def object_code(text: str, optimised: bool = True) -> bytes:
    """Machine code of the text; without vectorisers, if LLVM aborts with them."""
    for effort in (Effort.ALL, Effort.SCALAR) if optimised else (Effort.NONE,):
        if (code := _attempt(text, effort)) is not None:
            return code
    raise InternalError("LLVM aborted on the CPU backend's code")


def _attempt(text: str, effort: Effort) -> bytes | None:
    """None if LLVM aborts."""
    helper = _helper()
    if helper is None:
        return codegen.object_code(text, effort)
    try:
        kind, data = helper.compile(text, effort)
    except (EOFError, BrokenPipeError):
        end()
        return None
    except BaseException:
        end()
        raise
    if kind == codegen.INVALID:
        raise codegen.InvalidIR(data.decode())
    return data


def _helper() -> _Helper | None:
    """The helper of this process; None where there can be none."""
    if _State.helper is not None and _State.helper.owner != os.getpid():
        _State.inherited.append(_State.helper)
        _State.helper = None
    if _State.helper is not None and _State.helper.process.poll() is not None:
        end()  # killed while it waited: no fault of the next text
    if _State.helper is None and _State.available and _is_python(sys.executable):
        _start()
    return _State.helper


def _is_python(executable: str) -> bool:
    """Not a program that has Python built in."""
    return bool(executable) and os.path.basename(executable).lower().startswith(("python", "pypy"))


def _start() -> None:
    try:
        _State.helper = _Helper()
        _State.helper.hear()
    except (OSError, EOFError):
        end()
        _State.available = False
    except BaseException:
        end()
        raise


@atexit.register
def end() -> None:
    """Ends the helper, if this process has one."""
    helper, _State.helper = _State.helper, None
    if helper is not None and helper.owner == os.getpid():
        helper.end()
