"""`python -m kernelgrad`: a file's functions, a kernel's IR after any pass, its CUDA C++, its gradient; and files for
plain nvcc, with host functions for gradients, or with the derivatives that a program asks for."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from .errors import KernelGradError


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        text = options.run(options)
        _write(text if text.endswith("\n") or not text else f"{text}\n", getattr(options, "output", None))
    except KernelGradError as error:
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _write(text: str, target: Path | None) -> None:
    if target is None:
        print(text, end="", flush=True)
        return
    try:
        target.write_text(text, newline="")
    except OSError as error:
        raise KernelGradError(f"cannot write {target}: {error.strerror}") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kernelgrad", description=__doc__)
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("file", type=Path, help="a .cu file, or - for what comes in")
    shared.add_argument("-I", dest="include_dirs", action="append", default=[], metavar="DIR")
    shared.add_argument("-D", dest="defines", action="append", default=[], metavar="NAME[=VALUE]")
    shared.add_argument("--std", default="c++17")

    listing = commands.add_parser("list", parents=[shared], help="list the functions of a file")
    listing.set_defaults(run=_list)

    dump = commands.add_parser("dump", parents=[shared], help="print a kernel's IR")
    dump.add_argument("kernel", nargs="?", help="such as saxpy, ns::f, 'scale<float, 4>'")
    dump.add_argument("--after", metavar="PASS", help="the stage to show (default: the last); see --stages")
    dump.add_argument("--stages", action="store_true", help="list the stages instead")
    dump.set_defaults(run=_dump)

    source = commands.add_parser("source", parents=[shared], help="print a kernel as CUDA C++")
    source.add_argument("kernel")
    source.set_defaults(run=_source)

    headers = commands.add_parser("include-dir", help="print the folder of headers for a build of your own")
    headers.set_defaults(run=_include_dir)

    gradient = commands.add_parser("gradient", parents=[shared], help="print a kernel's gradient as CUDA C++")
    gradient.add_argument("kernel")
    gradient.add_argument("parameters", nargs="?", help="such as 'out, in' (default: every floating-point parameter)")
    gradient.add_argument(
        "--no-primal", action="store_true", help="the reverse alone, without the kernel's own results"
    )
    gradient.add_argument(
        "--deterministic", action="store_true", help="adjoints that are bitwise the same from run to run"
    )
    gradient.add_argument("--unique", metavar="NAMES", help="index buffers that hold no value twice, as you promise")
    gradient.add_argument("--explain", action="store_true", help="say how and why instead of printing the code")
    gradient.set_defaults(run=_gradient)

    written = argparse.ArgumentParser(add_help=False)
    written.add_argument("-o", dest="output", type=Path, metavar="FILE", help="where to write it (default: print it)")
    _add_diff(commands.add_parser("diff", parents=[shared, written], help="write a gradient as a file for plain nvcc"))
    transpile = commands.add_parser(
        "transpile", parents=[shared, written], help="replace the derivatives that a program asks for by code"
    )
    transpile.set_defaults(run=_transpile)
    return parser


def _add_diff(diff: argparse.ArgumentParser) -> None:
    diff.add_argument("kernel")
    diff.add_argument("--wrt", metavar="NAMES", help="such as out,in (default: every floating-point parameter)")
    diff.add_argument("--host-wrapper", action="store_true", help="with a C++ function that allocates, launches, frees")
    diff.add_argument("--grid", type=_extents, metavar="X[,Y[,Z]]", help="of all launches; with --block")
    diff.add_argument("--block", type=_extents, metavar="X[,Y[,Z]]")
    diff.add_argument("--no-primal", action="store_true", help="the reverse alone, without the kernel's own results")
    diff.add_argument("--keep", metavar="NAMES", help="pure outputs whose adjoints are left as they are")
    diff.add_argument("--assign", metavar="NAMES", help="pure inputs whose adjoints are written, not added to")
    diff.add_argument("--may-alias", action="store_true", help="arguments may share memory")
    diff.add_argument("--unique", metavar="NAMES", help="index buffers that hold no value twice, as you promise")
    diff.add_argument("--deterministic", action="store_true", help="adjoints that are bitwise the same from run to run")
    diff.add_argument("--tape-budget", metavar="BYTES", help="checkpoints long loops within so much, such as '1 GB'")
    diff.set_defaults(run=_diff)


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from . import __version__

        print(f"kernelgrad {__version__}")
        parser.exit()


def _extents(text: str) -> tuple[int, int, int]:
    parts = text.replace("x", ",").split(",")
    if not 1 <= len(parts) <= 3 or not all(part.strip().isdigit() and int(part) for part in parts):
        raise argparse.ArgumentTypeError(f"wants one to three positive integers, such as 64 or 16,16, got '{text}'")
    return (*map(int, parts), *(1,) * (3 - len(parts)))  # type: ignore[return-value]


def _module(options: argparse.Namespace):  # type: ignore[no-untyped-def]
    from .api import compile, load

    given = {"include_dirs": options.include_dirs, "defines": options.defines, "std": options.std}
    output = getattr(options, "output", None)
    if options.file == Path("-"):
        return compile(sys.stdin.read(), name="stdin.cu", **given)
    if output is not None and output.exists() and options.file.exists() and output.samefile(options.file):
        raise KernelGradError(f"-o {output} would overwrite what it is made from: name another file")
    return load(options.file, **given)


def _list(options: argparse.Namespace) -> str:
    functions = _module(options).functions
    if not functions:
        print(f"{options.file}: no functions in it", file=sys.stderr)
    return "\n".join(functions)


def _dump(options: argparse.Namespace) -> str:
    from . import pipeline
    from .ir.printer import print_module

    if options.stages:
        return "\n".join(pipeline.STAGES)
    if options.kernel is None:
        raise KernelGradError("dump wants the name of a function; `kernelgrad list` prints those of a file")
    wanted = options.after or pipeline.STAGES[-1]
    if wanted not in pipeline.STAGES:
        raise KernelGradError(f"no stage '{wanted}'; there are: {', '.join(pipeline.STAGES)}")
    lowered, name = pipeline.lower(_module(options)._unit, options.kernel)
    return next(print_module(module) for stage, module in pipeline.stages(lowered, name) if stage == wanted)


def _include_dir(options: argparse.Namespace) -> str:
    from . import include_dir

    return include_dir


def _source(options: argparse.Namespace) -> str:
    return str(_module(options)[options.kernel].source)


def _gradient(options: argparse.Namespace) -> str:
    from .api import assume, gradient

    found: Any = gradient(
        _module(options)[options.kernel],
        options.parameters,
        primal=not options.no_primal,
        deterministic=options.deterministic,
        assume=assume(unique=options.unique),
    )
    return str(found.explain() if options.explain else found.source)


def _diff(options: argparse.Namespace) -> str:
    from .api import assume, gradient
    from .kernel import Kernel
    from .transpile.derivative_file import derivative_file

    shape = _shape(options)
    kernel = _module(options)[options.kernel]
    if not isinstance(kernel, Kernel):
        raise KernelGradError(f"{options.kernel} is not a kernel: {_instead(kernel)}")
    made: Any = gradient(
        kernel,
        options.wrt,
        primal=not options.no_primal,
        keep=options.keep,
        assign=options.assign,
        may_alias=options.may_alias,
        tape_budget=options.tape_budget,
        deterministic=options.deterministic,
        assume=assume(unique=options.unique),
    )
    return derivative_file(made, shape, options.host_wrapper)


def _shape(options: argparse.Namespace) -> Any:
    from .runtime.config import make_launch
    from .transpile.host_function import Shape

    if (options.grid is None) != (options.block is None):
        raise KernelGradError("--grid and --block go together")
    if options.grid is None:
        return None
    make_launch(options.grid, options.block)
    return Shape(options.grid, options.block)


def _instead(function: Any) -> str:
    """What there is for a function that is no kernel."""
    from .programs.function import HostFunction

    if isinstance(function, HostFunction):
        return "ask for the derivative of a host function in the file, and use `kernelgrad transpile`"
    return "`kernelgrad gradient` prints a function's gradient"


def _transpile(options: argparse.Namespace) -> str:
    from .transpile.program import transpiled

    text = transpiled(_module(options))
    breaks = options.file != Path("-") and b"\r\n" in options.file.read_bytes()
    return text.replace("\n", "\r\n") if breaks else text
