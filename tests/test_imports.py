"""What may import what: folders only to their left, optional packages only where they are used, and a quick start."""

from __future__ import annotations

import ast
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "kernelgrad"

# Data flows from left to right. `errors`, `cache`, `locks`, `deep`, `progress` are for all; the files beside the
# folders see all, and so does `host`, which only `api` sees.
MAY_IMPORT = {
    "ir": {"ir"},
    "frontend": {"ir", "frontend"},
    "transforms": {"ir", "transforms"},
    "autodiff": {"ir", "transforms", "autodiff"},
    "backends": {"ir", "transforms", "backends"},
    "runtime": {"ir", "transforms", "backends", "runtime"},
    "interop": {"ir", "runtime", "interop"},
}
SEE_ALL = {"", "host"}
HEAVY = {"clang": {"frontend"}, "llvmlite": {"backends", "runtime"}}
SHARED = {"errors", "cache", "deep", "locks", "progress"}
OPTIONAL = {"cuda", "torch", "cupy", "jax", "jaxlib", "numba", "warp", "ml_dtypes"}

FILES = sorted(PACKAGE.rglob("*.py"))


def folder(file: Path) -> str:
    """The folder of the package that a file lies in; "" for api, pipeline and the others beside the folders."""
    parts = file.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else ""


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


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_folders_import_only_to_their_left(file: Path) -> None:
    own = folder(file)
    wrong = []
    for name, line in imported(parse(file), file):
        parts = name.split(".")
        if (
            own not in SEE_ALL
            and parts[0] == "kernelgrad"
            and len(parts) > 1
            and parts[1] not in MAY_IMPORT[own] | SHARED
        ):
            wrong.append(f"{file}:{line}: {own} imports {name}")
        if parts[:2] == ["kernelgrad", "host"] and own != "host" and file.name != "api.py":
            wrong.append(f"{file}:{line}: imports {name}, which only api.py sees")
    assert not wrong


# From what is known of a launch to what runs: none of these imports a later one, in functions or for types neither.
PLANNED = """known binding variants gathers launch_choice forms in_two launch_memory launch_additions hidden coarsening
    finishing crowds quads plans planning gradients""".split()


@pytest.mark.parametrize("name", PLANNED)
def test_launches_are_planned_in_one_direction(name: str) -> None:
    file, later = PACKAGE / f"{name}.py", PLANNED[PLANNED.index(name) :]
    found = {
        parts[1] for n, _ in imported(parse(file), file) if (parts := n.split("."))[0] == "kernelgrad" and parts[1:]
    }
    assert not found & set(later)


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_packages_are_imported_where_they_belong(file: Path) -> None:
    tree, wrong = parse(file), []
    for name, line in imported(tree, file):
        root = name.partition(".")[0]
        if root in HEAVY and folder(file) not in HEAVY[root]:
            wrong.append(f"{file}:{line}: {root} outside {', '.join(HEAVY[root])}")
    for statement in at_import_time(tree):
        for name, line in imported(statement, file):
            if name.partition(".")[0] in OPTIONAL:
                wrong.append(f"{file}:{line}: {name} is optional: import it in the function that needs it")
    assert not wrong


def python(code: str) -> str:
    environment = {"PYTHONPATH": str(PACKAGE.parent), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    return done.stdout


def test_import_loads_no_heavy_package() -> None:
    loaded = python("import sys, kernelgrad; print(*sorted({name.partition('.')[0] for name in sys.modules}))").split()
    assert not (OPTIONAL | set(HEAVY)) & set(loaded)


def test_import_costs_less_than_twice_numpys() -> None:
    """The margin is for busy machines: `make bench` measures the number that counts."""
    code = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"
    times: dict[str, list[float]] = {"numpy": [], "kernelgrad": []}
    for _ in range(5):
        for name, samples in times.items():
            samples.append(float(python(code.format(name))))
    numpy, kernelgrad = (statistics.median(samples) for samples in times.values())
    assert kernelgrad < 2 * numpy + 0.1
