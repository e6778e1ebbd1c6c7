"""Options and fixtures for all tests."""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

from garbage import collect_for_good

# Whoever starts the tests in the background may have interrupts ignored; several tests send one, to themselves or to
# processes of theirs, which inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Processes that tests start, very many, find modules as bytecode.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# What is imported while tests are collected stays.
gc.disable()

# JAX takes the CPU for two devices, if it is there, and a GPU's memory as it needs it: others test there too. How fast
# XLA's own code is on the CPU is nobody's subject here.
_XLA = ("force_host_platform_device_count=2", "backend_optimization_level=0", "llvm_disable_expensive_passes=true")
os.environ.setdefault("XLA_FLAGS", " ".join(f"--xla_{flag}" for flag in _XLA))
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

# Where the machine code itself is the subject, or many kinds of kernels meet, LLVM optimises as it does for a user: it
# contracts products and sums, vectorises, and believes what we tell it of memory. Elsewhere that is most of a test's
# time, and says nothing about derivatives. Of `autodiff`: tests of what rounding and contraction must not change.
OPTIMISED = (
    "autodiff/test_atomics.py",
    "autodiff/test_decisions.py",
    "autodiff/test_vectorize",
    "autodiff/test_regressions.py",
    "autodiff/test_rules_of_reversal.py",
    "autodiff/test_seeds.py",
    "autodiff/test_traps.py",
    "autodiff/winners",
    "backends",
    "emulation",
    "generated",
    "golden",
    "gpu",
    "runtime",
    "test_benchmarks.py",
    "test_corpus",
    "test_examples.py",
)
# Long families: the suite runs about one in so many of their cases, always the same ones; a long run has all of them.
THINNED = {
    "analysis/ownership/test_single_stores.py": 2,
    "analysis/test_tiles.py": 2,
    "autodiff/accumulate/gather/test_flat_launches.py": 2,
    "autodiff/accumulate/gather/test_gather.py": 3,
    "autodiff/accumulate/gather/test_scattered.py": 2,
    "autodiff/accumulate/gather/test_windows.py": 2,
    "autodiff/accumulate/test_block_cells.py": 3,
    "autodiff/prepare/test_double_cells.py": 2,
    "autodiff/saving/test_bit_stack.py": 2,
    "autodiff/saving/test_earlier_fills.py": 2,
    "autodiff/saving/test_rescaled_sums.py": 3,
    "autodiff/test_awkward_launches.py": 2,
    "autodiff/test_block_rows.py": 3,
    "autodiff/test_block_shape.py": 2,
    "autodiff/test_cooperation.py": 3,
    "autodiff/test_decisions.py": 2,
    "autodiff/test_deferred.py": 2,
    "autodiff/test_deterministic.py": 2,
    "autodiff/test_early_returns.py": 3,
    "autodiff/test_explain_plans.py": 2,
    "autodiff/test_gradients.py": 2,
    "autodiff/test_idiom_plans.py": 2,
    "autodiff/test_iterations_apart.py": 2,
    "autodiff/test_kept_rows.py": 2,
    "autodiff/test_left_loops.py": 2,
    "autodiff/test_long_sums.py": 2,
    "autodiff/test_loop_exchange.py": 2,
    "autodiff/test_row_exchange.py": 3,
    "autodiff/test_second_order_kinds.py": 2,
    "autodiff/test_shared_parts.py": 2,
    "autodiff/test_thread_cells.py": 2,
    "autodiff/test_thread_digits.py": 2,
    "autodiff/test_trees.py": 2,
    "autodiff/test_turns.py": 2,
    "autodiff/test_walking_pointers.py": 2,
    "autodiff/test_warp_barriers.py": 2,
    "autodiff/winners/test_winners.py": 2,
    "backends/cuda/test_block_tiles.py": 2,
    "backends/cuda/test_contraction.py": 2,
    "backends/cuda/test_dealt_loops.py": 2,
    "backends/cuda/test_lane_sums.py": 2,
    "frameworks/test_jax.py": 2,
    "frontend/test_overflow.py": 2,
    "host/test_programs.py": 2,
    "programs/test_thrust.py": 2,
    "test_plan_counts.py": 2,
    "transforms/test_bit_moves.py": 2,
    "transforms/test_stored_values.py": 2,
    "transforms/test_ties.py": 2,
    "transpile/test_program.py": 2,
    "transpile/test_recorded_memory.py": 2,
    "transpile/test_transpiled_integers.py": 2,
}
SHORT = 5  # a short run has about one in so many of the cases of a family, and one of each
TESTS = Path(__file__).parent


# How long one example takes on a busy machine says nothing.
settings.register_profile("kernelgrad", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kernelgrad")


def pytest_runtest_setup(item: pytest.Item) -> None:
    optimised = item.path.relative_to(TESTS).as_posix().startswith(OPTIMISED)
    os.environ["KERNELGRAD_CPU_OPTIMISE"] = "1" if optimised else "0"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`slow`: what only a long run has. `more`: of each family of cases, what a short run leaves out."""
    families: dict[str, list[pytest.Item]] = {}
    for item in items:
        one_in = THINNED.get(item.path.relative_to(TESTS).as_posix(), 1)
        if not _is_case(item):
            continue
        if _number(item) % one_in:
            item.add_marker(pytest.mark.slow)
        elif item.get_closest_marker("slow") is None:
            families.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for family in families.values():
        few = [item for item in family if _number(item) % SHORT == 0] or [min(family, key=_number)]
        for item in family:
            if item not in few:
                item.add_marker(pytest.mark.more)


def _is_case(item: pytest.Item) -> bool:
    return "[" in item.name


def _number(item: pytest.Item) -> int:
    """The same in every run, whatever other tests there are."""
    return crc32(item.name.encode())


def pytest_collection_finish() -> None:
    """Passes make very many small objects and few cycles: Python need not look for those as often as it does, nor at
    thousands of tests each time. But often enough for what cycles hold: a process grew to three gigabytes."""
    collect_for_good()
    gc.enable()
    gc.set_threshold(50_000, 20, 10)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(scope="module")
def cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """For a file of tests that neither use nor fill the user's cache."""
    path = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELGRAD_CACHE_DIR", str(path))
        yield path


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    """What other tests left behind is finalized before, and not meanwhile: where a finalizer would be interrupted, or
    find no room on the stack, or keep what should go by itself from being seen to stay."""
    collect_for_good()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether launches were replayed, one by one."""
    from kernelgrad.runtime.replay import Replay

    found: list[bool] = []
    run = Replay.run

    def watch(self: Any, *args: Any) -> bool:
        found.append(run(self, *args))
        return found[-1]

    monkeypatch.setattr(Replay, "run", watch)
    return found
