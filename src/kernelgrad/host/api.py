"""What a user calls for programs of several launches. Thin, as `kernelgrad.api` is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .. import requests

if TYPE_CHECKING:
    from .checkpoint import Checkpointed
    from .record import Tape


def record(*, tape_budget: int | str | None = None, check: bool | None = None) -> Tape:
    """Records the launches of kernels, `kg.copy`, `kg.fill` and `kg.zeros`: `with kg.record() as tape:`, and after that
    `tape.backward(u, d_u)` and `tape.grad(u0)`.

    `tape_budget`: how many bytes may be saved, as in 1 << 30 or "2 GB"; beyond, steps are run again from checkpoints.
    `check`: whether writes that are not recorded, as `u += 1`, are looked for: None of memory below 1 MB, True, False.
    They are found in PyTorch's tensors, and on the CPU wherever a later step reads; on a GPU, in arrays of CuPy and
    Numba, only where the reverse reads again what was written: not between launches that are linear.
    Of a view of a larger array, a launch may touch what lies around it: a halo. How much, its integers tell; where they
    do not, it may be all of the allocation, which is saved and watched then (`tape.explain()` says so).
    Other threads are not recorded. Kernels must have no data races: `kernel.check` finds them."""
    from .record import Tape

    if check is not None:
        requests.flags(check=check)
    budget = requests.memory_size("tape_budget", tape_budget)
    return Tape(budget, None if check is None else bool(check), may_be_program=True)


def copy(target: Any, source: Any) -> None:
    """Copies an array's contents to another of the same size and dtype, also between CPU and GPU; recorded by
    `kg.record`."""
    from .copying import copy

    copy(target, source)


def fill(array: Any, value: Any) -> None:
    """Fills an array with a number; recorded by `kg.record`."""
    from .copying import fill

    fill(array, value)


def zeros(shape: Any, dtype: Any = None, *, like: Any = None) -> Any:
    """An array of zeros, of the package and device of `like`, NumPy's by default; known to `kg.record`, where its
    adjoint is that of the zeros."""
    from .copying import zeros

    return zeros(shape, dtype, like)


def checkpoint(
    step: Callable[..., Any],
    state: Any,
    n: int,
    *,
    budget: int | str | None = None,
    wrt: Sequence[Any] = (),
    numbers: Any = None,
    check: bool | None = None,
) -> Checkpointed:
    """Runs `state = step(state, k, *numbers)` for k = 0 to n - 1, so that it can be reversed within a budget: a few
    states are kept, at binomial distances, and steps are run again from them.

    `state`: a tuple of arrays, all that one step passes on to the next; or a list, a dict, tuples in a dict, and so on;
    one array is a tuple of one. `step` gets it in that form, launches kernels on the arrays and returns those of the
    next state, the same or others, in any order (u and v swapped); None if it changed them in place.
    It is called several times with the same k, and must do the same each time (small states are looked at: another
    result is an error); what it writes besides is scratch.
    `numbers`: what changes from step to step, passed on after k: a sequence with an entry for each step, or a function
    of k. `wrt`: other arrays whose adjoints are wanted. `budget`: bytes for states, as in 1 << 30 or "1 GB". `check`:
    as of `kg.record`; results and writes of steps are looked at, of None in states below 1 MB.

    The result has `.state`, the arrays after the last step; `.backward(*seeds)` with an adjoint for each, None for
    zero, or with one argument that is like the state; then `.grad(array)` of an array of the first state or among
    `wrt`, `.grad("kernel.dt")` of a number, summed over all launches. The state's arrays hold after `backward` what
    they held before."""
    from .checkpoint import checkpoint

    requests.function("checkpoint", step)
    count = requests.count("n", n)
    size = requests.memory_size("budget", budget)
    if check is not None:
        requests.flags(check=check)
    return checkpoint(step, state, count, size, requests.arguments("wrt", wrt), numbers, check)
