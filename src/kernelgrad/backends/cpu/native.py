"""LLVM IR to machine code for this computer, and machine code into the process."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Iterator
from contextlib import contextmanager

import llvmlite
import llvmlite.binding as llvm

from ...errors import InternalError
from ...locks import COMPILING, held_by_forks, once

held_by_forks(llvm.ffi.lib._lock)
ENTRY = "kg.entry"  # the name of a kernel's entry in its object code


@once
def _target_machine() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    # A small code model would need the C library within 2 GB of the code.
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=_features(),
        opt=3,
        reloc="pic",
        codemodel="jitdefault",
        jit=True,
    )


@once
def _features() -> str:
    return str(llvm.get_host_cpu_features().flatten())


@once
def target_id() -> str:
    """What machine code depends on, apart from the LLVM IR."""
    return f"llvmlite {llvmlite.__version__} {llvm.get_process_triple()} {llvm.get_host_cpu_name()} {_features()}"


def optimise(text: str) -> llvm.ModuleRef:
    """The IR after LLVM's -O3 pipeline."""
    with COMPILING:
        machine = _target_machine()
        try:
            module = llvm.parse_assembly(text)
            module.verify()
        except RuntimeError as error:
            raise InternalError(f"the CPU backend made invalid LLVM IR: {error}") from None
        module.triple = llvm.get_process_triple()
        module.data_layout = str(machine.target_data)
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        options.loop_vectorization = options.slp_vectorization = True
        options.loop_interleaving = options.loop_unrolling = True
        passes = llvm.create_pass_builder(machine, options)
        with _loads_in_place():
            passes.getModulePassManager().run(module, passes)
        return module


@contextmanager
def _loads_in_place() -> Iterator[None]:
    """Has a loop over threads load x[i] again, although the thread before loaded it as x[i + 1]: what one thread hands
    to the next keeps the loop from being vectorised. The option is everybody's in this process, so it is set back."""
    llvm.set_option("", "-enable-load-in-loop-pre=false")
    try:
        yield
    finally:
        llvm.set_option("", "-enable-load-in-loop-pre=true")


def compile_object(text: str) -> bytes:
    with COMPILING:
        return bytes(_target_machine().emit_object(optimise(text)))


def assembly(text: str) -> str:
    with COMPILING:
        return str(_target_machine().emit_assembly(optimise(text)))


# ---- loading ------------------------------------------------------------------------------------------------------


@once
def _jit() -> llvm.LLJIT:
    # Python need not have loaded the math library for everyone to see.
    name = ctypes.util.find_library("m")
    if name:
        llvm.load_library_permanently(name)
    return llvm.create_lljit_compiler(_target_machine())


class LoadedCode:
    """Machine code in the process, for as long as this object lives. `address` is the entry's."""

    _count = 0

    def __init__(self, object_code: bytes, entry: str):
        with COMPILING:
            LoadedCode._count += 1
            builder = llvm.JITLibraryBuilder().add_object_img(object_code).add_current_process().export_symbol(entry)
            self._tracker = builder.link(_jit(), f"kernel{LoadedCode._count}")
            self.address = int(self._tracker[entry])
