"""What may import what: folders only to their left, optional packages only where they are used, and a quick start."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "kernelgrad"

# Data flows downwards: each imports from those above it. A folder and what is in it are different layers, so that no
# imports go both ways between them. `pipeline` and `kernel` are files at the root; the other files there see all.
LAYERS = """
ir
analysis  analysis/access  analysis/block_interpreter  analysis/ownership
transforms
autodiff/calculus  autodiff/winners  autodiff/saving  autodiff/refusals  autodiff/accumulate/gather
autodiff/accumulate  autodiff/prepare  autodiff/sweep  autodiff/costs  autodiff
schedule/order  schedule/exchange  schedule/sum_over  schedule/rows  schedule/vectorize  schedule/coarsen
schedule/trees  schedule
backends/cuda  backends/cpu  backends
runtime
pipeline
kernel
derivatives/asked
launches/choice  launches/memory  launches
explain
derivatives
derivatives/second_order
checking
host
programs
transpile
frameworks  torch  jax
""".split()
# Kernels of our own are compiled as a user's are, and so are those that come with their source.
COMPILE = {
    ("launches/memory/ordered_adds", "kernelgrad.api.load"),
    ("launches/memory/fixed_tape", "kernelgrad.api.load"),
    ("host/transfers", "kernelgrad.api.compile"),
    ("torch/operator", "kernelgrad.api.of_cupy"),
    ("jax/operator", "kernelgrad.api.of_cupy"),
}
READ_TEXT = ("pipeline", "transpile")  # to compile it, and to rewrite it
HEAVY = {"clang": {"frontend"}, "llvmlite": {"backends", "runtime"}}
SHARED = {"errors", "cache", "deep", "locks", "progress", "requests"}  # for all
OPTIONAL = {"cuda", "torch", "cupy", "jax", "jaxlib", "numba", "warp", "ml_dtypes"}

FILES = sorted(PACKAGE.rglob("*.py"))


def folder(file: Path) -> str:
    """The folder of the package that a file lies in; "" for api, pipeline and the others beside the folders."""
    parts = file.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else ""


def layer(path: str) -> str | None:
    """The layer that a module is in, or a module and one of its names: the longest that fits."""
    return max((at for at in LAYERS if path == at or path.startswith(f"{at}/")), key=len, default=None)


def imported(tree: ast.AST, file: Path) -> Iterator[tuple[str, int]]:
    """The absolute names of the modules that a piece of a file imports, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = absolute(node, file)
            yield from ((f"{base}.{alias.name}", node.lineno) for alias in node.names)


def absolute(node: ast.ImportFrom, file: Path) -> str:
    if node.level == 0:
        return node.module or ""
    parents = ("kernelgrad", *file.relative_to(PACKAGE).parts[:-1])
    base = parents[: len(parents) - node.level + 1]
    return ".".join((*base, node.module) if node.module else base)


def at_import_time(tree: ast.Module) -> Iterator[ast.stmt]:
    """The statements that run when the module is imported; those for type checkers only do not."""
    pending = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        nested = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt | ast.ExceptHandler)]
        if nested:
            pending += nested  # type: ignore[arg-type]
        else:
            yield node


def parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(), str(file))


def is_above(name: str, path: str) -> bool:
    """Whether the module at a path may import a name of this package."""
    parts = name.split(".")[1:]
    own, other = layer(path), layer("/".join(parts))
    if not parts or parts[0] in SHARED or (own is None and not path.startswith("frontend/")):
        return True
    if path.startswith("frontend/"):
        return parts[0] in ("ir", "frontend")
    if (path, name) in COMPILE or (own in READ_TEXT and parts[0] == "frontend"):
        return True
    return own is not None and other is not None and LAYERS.index(other) <= LAYERS.index(own)


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_layers_import_only_from_above(file: Path) -> None:
    path, tree = str(file.relative_to(PACKAGE).with_suffix("")), parse(file)
    names = [found for found in imported(tree, file) if found[0].split(".")[0] == "kernelgrad"]
    for_types = {found for node in type_checking(tree) for found in imported(node, file)}
    assert not [
        f"{file}:{line}: {name}" for name, line in names if (name, line) not in for_types and not is_above(name, path)
    ]


def type_checking(tree: ast.Module) -> Iterator[ast.If]:
    """What is imported for annotations alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield node


def test_every_folder_is_a_layer() -> None:
    folders = {str(file.parent.relative_to(PACKAGE)) for file in FILES} - {".", "frontend", "frontend/prelude"}
    assert folders == {at for at in LAYERS if (PACKAGE / at).is_dir()}


# From what is known of a launch to what runs: none of these imports a later one, in functions or for types neither.
PLANNED = """runtime/integers launches/choice/binding launches/choice/variant launches/choice/gathers
    launches/choice/choose launches/choice/forms launches/choice/split_launch launches/memory/buffers
    launches/memory/additions launches/memory/tape_memory launches/memory/started_grid launches/memory/partial_sums
    launches/memory/replicas launches/vector_width launches/kept_rows launches/plan launches/planning
    derivatives/gradient""".split()


@pytest.mark.parametrize("name", PLANNED)
def test_launches_are_planned_in_one_direction(name: str) -> None:
    file, later = PACKAGE / f"{name}.py", PLANNED[PLANNED.index(name) + 1 :]
    found = [imported_name.split(".", 1)[-1].replace(".", "/") for imported_name, _ in imported(parse(file), file)]
    assert not [path for path in found if any(path == other or path.startswith(f"{other}/") for other in later)]


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_packages_are_imported_where_they_belong(file: Path) -> None:
    tree, wrong = parse(file), []
    for name, line in imported(tree, file):
        root = name.partition(".")[0]
        if root in HEAVY and folder(file) not in HEAVY[root]:
            wrong.append(f"{file}:{line}: {root} outside {', '.join(HEAVY[root])}")
    for statement in at_import_time(tree):
        for name, line in imported(statement, file):
            if name.partition(".")[0] in OPTIONAL - {folder(file)}:  # but for the folder of a framework's operators
                wrong.append(f"{file}:{line}: {name} is optional: import it in the function that needs it")
    assert not wrong


def names_of_modules(file: Path, known: dict[str, Path]) -> Iterator[str]:
    """The modules of this package of which names are imported when the module of a file is."""
    for statement in at_import_time(parse(file)):
        for name, _ in imported(statement, file):
            if name not in known and name.rpartition(".")[0] in known:
                yield name.rpartition(".")[0]


def modules_of(file: Path, known: dict[str, Path]) -> Iterator[str]:
    for statement in at_import_time(parse(file)):
        yield from (name for name, _ in imported(statement, file) if name in known)


def test_every_module_can_be_imported_first() -> None:
    """A name of a module that (through others) imports this one: not there yet if that module is the first."""
    known = {".".join(("kernelgrad", *f.relative_to(PACKAGE).with_suffix("").parts)): f for f in FILES}
    names = {module: set(names_of_modules(file, known)) for module, file in known.items()}
    imports = {module: names[module] | set(modules_of(file, known)) for module, file in known.items()}

    def reached(module: str) -> set[str]:
        found, pending = set[str](), [module]
        while pending:
            new = imports[pending.pop()] - found
            found |= new
            pending += new
        return found

    assert not [f"{module}: {other}" for module in known for other in names[module] if module in reached(other)]


def python(code: str) -> str:
    environment = {"PYTHONPATH": str(PACKAGE.parent), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    return done.stdout


def test_import_loads_no_heavy_package() -> None:
    loaded = python("import sys, kernelgrad; print(*sorted({name.partition('.')[0] for name in sys.modules}))").split()
    assert not (OPTIONAL | set(HEAVY)) & set(loaded)


def test_import_costs_less_than_twice_numpys() -> None:
    """Of the quickest of some: what others do meanwhile only adds to it. The margin is for busy machines: `make bench`
    measures the number that counts."""
    code = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"
    times: dict[str, list[float]] = {"numpy": [], "kernelgrad": []}
    for _ in range(5):
        for name, samples in times.items():
            samples.append(float(python(code.format(name))))
    numpy, kernelgrad = (min(samples) for samples in times.values())
    assert kernelgrad < 2 * numpy + 0.1
