"""LLVM IR to machine code for this computer. Run as a script, it does so for another process (Note [Isolation]), and so
it imports nothing of this package."""

from __future__ import annotations

import os
import re
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from functools import cache
from typing import BinaryIO

import llvmlite.binding as llvm

READY, CODE, INVALID = b"R", b"C", b"I"  # kinds of answers
_REQUEST = struct.Struct("=bq")  # effort; bytes of text
_ANSWER = struct.Struct("=cq")  # kind; bytes


class InvalidIR(ValueError):
    """LLVM does not take the text."""


class Effort(IntEnum):
    """What LLVM does for fast code: nothing (-O0: a tenth of the time to compile), -O3 without the vectorisers, -O3."""

    NONE = 0
    SCALAR = 1
    ALL = 2


@cache
def target_machine(effort: Effort) -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    # A small code model would need the C library within 2 GB of the code.
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=features(),
        opt=3 if effort else 0,
        reloc="pic",
        codemodel="jitdefault",
        jit=True,
    )


@cache
def features() -> str:
    return str(llvm.get_host_cpu_features().flatten())


def optimise(text: str, effort: Effort = Effort.ALL) -> llvm.ModuleRef:
    """The IR after LLVM's -O3 pipeline, if so much effort is wanted."""
    machine = target_machine(effort)
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise InvalidIR(str(error)) from None
    module.triple = llvm.get_process_triple()
    module.data_layout = str(machine.target_data)
    if effort is Effort.NONE:
        return module
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = effort is Effort.ALL
    options.loop_interleaving = options.loop_unrolling = True
    passes = llvm.create_pass_builder(machine, options)
    with _without_pre():
        passes.getModulePassManager().run(module, passes)
    return module


@contextmanager
def _without_pre() -> Iterator[None]:
    """Without partial redundancy elimination. Of loads: a loop over threads loads x[i] again, although the thread
    before loaded it as x[i + 1], since what one thread hands to the next keeps the loop from being vectorised. Of
    values: Note [Addresses that meet] in `workarounds`. The options are everybody's in this process, so they are set
    back."""
    _set_options("enable-load-in-loop-pre=false", "enable-pre=false")
    try:
        yield
    finally:
        _set_options("enable-load-in-loop-pre=true", "enable-pre=true")


def _set_options(*options: str) -> None:
    for option in options:
        llvm.set_option("", f"-{option}")


def object_code(text: str, effort: Effort = Effort.ALL) -> bytes:
    module = optimise(text, effort)
    if effort is Effort.ALL and _takes_one_lane(str(module)):
        module = optimise(text, Effort.SCALAR)
    return bytes(target_machine(effort).emit_object(_fenced(module)))


def _takes_one_lane(text: str) -> bool:
    """Whether a mask's first lane may speak for all: Note [Addresses that meet] in `workarounds`."""
    return any(map(_Definitions.take_one_lane, text.split("\ndefine ")))


_NAME = r"%[-\w.$]+|%\"[^\"]*\""
_DEFINED = re.compile(rf"^ *({_NAME}) = (.*)$", re.M)
_OPERAND = re.compile(_NAME)
_FIRST_NUMBER = re.compile(rf"extractelement <\d+ x (?:i(?!1>)\d+|ptr)> ({_NAME}), i64 0$")
_FIRST_OF_MASK = re.compile(r"extractelement <\d+ x i1> .*, i64 0$")
_CHOICE = re.compile(rf"select i1 ({_NAME}), (?:i(?!1 )\d+|ptr) ")
_BLENDS = ("select <", "tail call <", "call <")
_ELSEWHERE = ("phi", "load", "insertelement", "icmp", "fcmp", "extractelement", "shufflevector")
_OF_BOOLS = ("and i1", "or i1", "xor i1", "select i1 ", "freeze i1")


class _Definitions(dict[str, str]):
    """Of the values of a function of LLVM's, by their names."""

    @classmethod
    def take_one_lane(cls, function: str) -> bool:
        if "extractelement" not in function:
            return False
        found = cls(_DEFINED.findall(function))
        return found.is_number_of_blend() or found.is_number_chosen_by_mask()

    def is_number_of_blend(self) -> bool:
        """Whether the first lane of numbers or addresses comes, by arithmetic, from what a mask chose."""
        todo = [match[1] for text in self.values() if (match := _FIRST_NUMBER.match(text))]
        seen = set[str]()
        while todo:
            name = todo.pop()
            text = self.get(name, "phi")
            if text.startswith(_BLENDS[:1]) or (text.startswith(_BLENDS) and "@llvm.masked." in text):
                return True
            if name not in seen and not text.startswith((*_ELSEWHERE, *_BLENDS)):
                todo += _OPERAND.findall(text)
            seen.add(name)
        return False

    def is_number_chosen_by_mask(self) -> bool:
        """Whether a number or address is chosen by the first lane of a mask, and what is computed from it."""
        first = {name for name, text in self.items() if _FIRST_OF_MASK.match(text)}
        more = first
        while more:
            of_bools = (name for name, text in self.items() if name not in first and text.startswith(_OF_BOOLS))
            more = {name for name in of_bools if not first.isdisjoint(_OPERAND.findall(self[name]))}
            first = first | more
        return any(match[1] in first for text in self.values() if first and (match := _CHOICE.match(text)))


_LOAD = r"(?:tail )?call (?:\w+ )*?(<\d+ x (\w+)>) @llvm\.masked\.load\.v(\d+)f.*"
_MASKED = re.compile(rf"^( *)({_NAME}) = ({_LOAD})$", re.M)


def _fenced(module: llvm.ModuleRef) -> llvm.ModuleRef:
    """With masked loads as instructions of their own. Folded into a masked fused multiply-add, LLVM may take them out
    again to save a copy, and then they read without their mask, where there may be no memory (`unfoldMemoryOperand` of
    AVX-512 instructions)."""
    text = str(module) if "+avx512f" in features() else ""
    if not _MASKED.search(text):
        return module
    declared = set[str]()

    def fenced(match: re.Match[str]) -> str:
        indent, name, load, type, element, count = match.groups()
        fence = f"@llvm.arithmetic.fence.v{count}f{_BITS[element]}"
        declared.add(f"declare {type} {fence}({type})")
        loaded = f'%"masked {name[1:].strip(chr(34))}"'
        return f"{indent}{loaded} = {load}\n{indent}{name} = call {type} {fence}({type} {loaded})"

    return llvm.parse_assembly("\n".join((_MASKED.sub(fenced, text), *sorted(declared))))


_BITS = {"half": 16, "float": 32, "double": 64}


# ---- requests and answers ------------------------------------------------------------------------------------------


def ask(pipe: BinaryIO, text: str, effort: Effort) -> None:
    data = text.encode()
    pipe.write(_REQUEST.pack(effort, len(data)) + data)
    pipe.flush()


def answer(pipe: BinaryIO, kind: bytes, data: bytes = b"") -> None:
    pipe.write(_ANSWER.pack(kind, len(data)) + data)
    pipe.flush()


def hear(pipe: BinaryIO) -> tuple[bytes, bytes]:
    """The next answer; EOFError where the other process has ended."""
    kind, size = _ANSWER.unpack(_exactly(pipe, _ANSWER.size))
    return kind, _exactly(pipe, size)


def _exactly(pipe: BinaryIO, size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return data


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Compiles until the other end closes."""
    answer(answers, READY)
    while header := requests.read(_REQUEST.size):
        effort, size = _REQUEST.unpack(header)
        text = _exactly(requests, size).decode()
        try:
            answer(answers, CODE, object_code(text, Effort(effort)))
        except InvalidIR as error:
            answer(answers, INVALID, str(error).encode())


def _main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what LLVM prints is no answer
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # an abort is expected, and leaves no file behind
    except ImportError:
        sys.stderr.write("core files are not turned off here\n")
    target_machine(Effort.ALL)
    serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    _main()
