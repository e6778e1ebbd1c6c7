"""Machine code of LLVM IR, and machine code into the process."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
from collections.abc import Iterator
from contextlib import contextmanager

import llvmlite
import llvmlite.binding as llvm

from ...errors import InternalError
from ...locks import COMPILING, held_by_forks, once
from ...progress import doing
from . import codegen, isolated

held_by_forks(llvm.ffi.lib._lock)
ENTRY = "kg.entry"  # the name of a kernel's entry in its object code


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
        return isolated.object_code(text, optimises())


# ---- loading ------------------------------------------------------------------------------------------------------


@once
def _jit() -> llvm.LLJIT:
    # Python need not have loaded the math library for everyone to see.
    name = ctypes.util.find_library("m")
    if name:
        llvm.load_library_permanently(name)
    return llvm.create_lljit_compiler(codegen.target_machine(codegen.Effort.ALL))


class LoadedCode:
    """Machine code in the process, for as long as this object lives. `address` is the entry's."""

    _count = 0

    def __init__(self, object_code: bytes, entry: str):
        with COMPILING:
            LoadedCode._count += 1
            builder = llvm.JITLibraryBuilder().add_object_img(object_code).add_current_process().export_symbol(entry)
            self._tracker = builder.link(_jit(), f"kernel{LoadedCode._count}")
            self.address = int(self._tracker[entry])
