"""Machine code of LLVM IR, by LLVM in a process of its own, and machine code into this process.

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
import ctypes
import ctypes.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

import llvmlite
import llvmlite.binding as llvm

from ...errors import InternalError
from ...locks import COMPILING, held_by_forks, once
from ...progress import doing
from . import codegen
from .codegen import Effort

held_by_forks(llvm.ffi.lib._lock)
ENTRY = "kg.entry"  # the name of a kernel's entry in its object code
_START = "import runpy, sys; sys.path[:] = sys.argv[2:]; runpy.run_path(sys.argv[1], run_name='__main__')"
_OPTIMISE = "KERNELGRAD_CPU_OPTIMISE"


def optimises() -> bool:
    """Whether LLVM optimises what is compiled now. $KERNELGRAD_CPU_OPTIMISE=0: code is there ten times sooner, and
    slow; for those who run much that is small once, as our tests do."""
    return os.environ.get(_OPTIMISE) != "0"


def target_id() -> str:
    """What machine code depends on, apart from the LLVM IR."""
    return _computer_id() if optimises() else f"{_computer_id()} -O0"


@once
def _computer_id() -> str:
    features = codegen.features()
    return f"llvmlite {llvmlite.__version__} {llvm.get_process_triple()} {llvm.get_host_cpu_name()} {features}"


@contextmanager
def _internal_errors() -> Iterator[None]:
    try:
        yield
    except codegen.InvalidIR as error:
        raise InternalError(f"the CPU backend made invalid LLVM IR: {error}") from None


def optimise(text: str) -> llvm.ModuleRef:
    """The IR after LLVM's -O3 pipeline, in this process: for looking at."""
    with COMPILING, _internal_errors():
        return codegen.optimise(text)


@doing(lambda text: f"making machine code of {text.count(chr(10))} lines of LLVM IR")
def compile_object(text: str) -> bytes:
    with COMPILING, _internal_errors():
        return object_code(text, optimises())


# ---- the other process ----------------------------------------------------------------------------------------------


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


# ---- loading ------------------------------------------------------------------------------------------------------


@once
def _jit() -> llvm.LLJIT:
    # Python need not have loaded the math library for everyone to see.
    name = ctypes.util.find_library("m")
    if name:
        llvm.load_library_permanently(name)
    return llvm.create_lljit_compiler(codegen.target_machine(Effort.ALL))


class LoadedCode:
    """Machine code in the process, for as long as this object lives. `address` is the entry's."""

    _count = 0

    def __init__(self, object_code: bytes, entry: str):
        with COMPILING:
            LoadedCode._count += 1
            builder = llvm.JITLibraryBuilder().add_object_img(object_code).add_current_process().export_symbol(entry)
            self._tracker = builder.link(_jit(), f"kernel{LoadedCode._count}")
            self.address = int(self._tracker[entry])
