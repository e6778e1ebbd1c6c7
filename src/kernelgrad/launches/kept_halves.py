"""Adjoints of half precision that a launch takes as they are (see `schedule/half_adjoints`): of which each element is
stored once. Others are copied to float for it."""

from __future__ import annotations

from ..analysis import roots, structure
from ..analysis.access.affine import Shape, Sums
from ..analysis.ownership.private import places_of
from ..analysis.ownership.rounding import is_rounded_once
from ..analysis.ownership.whole import bytes_read_once
from ..autodiff.prepare.options import promised_roots
from ..ir.ops import Value
from ..kernel import Kernel
from ..runtime.integers import KnownLaunch, Looking
from .choice.variant import Variant, with_halves
from .plan import Gathering
from .started_launch import numbers_in, started_shape


def kept_halves(
    variant: Variant, gathers: tuple[Gathering, ...], launch: KnownLaunch, known: Looking
) -> frozenset[str]:
    """The listed parameters. `known`: of the kernel's own integers."""
    wanted = launch.halves & variant.derivative.adjoints.keys() - _added_later(variant)
    if not wanted or variant.options.facts.exchanged or len(variant.kernels) > 1:
        return frozenset()
    plain = variant if variant.options.facts.vector is None else variant.plainer
    steps = [(plain.reverse, started_shape(plain, launch))]
    steps += [(gathering.kernel, Shape(gathering.launch.grid, gathering.launch.block)) for gathering in gathers]
    gathered = {gather.name for gather in variant.options.facts.gathered}

    def is_kept(name: str) -> bool:
        if name in gathered:  # by a thread for each element
            return _root(variant, name, plain.reverse) not in roots.analyse(plain.reverse.function).written()
        adds_once = name in variant.options.facts.overwritten or _is_read_once(variant, name, launch, known)
        return adds_once or all(_rounds_once(plain, name, *step, launch, known) for step in steps)

    code = [variant.reverse, *(gathering.kernel for gathering in gathers)]
    found = filter(is_kept, wanted)
    return frozenset(n for n in found if all(with_halves(k, variant.half_params(frozenset((n,)))) for k in code))


def _is_read_once(variant: Variant, name: str, launch: KnownLaunch, known: Looking) -> bool:
    """Whether the kernel reads an element once at most, and nobody stores one: so often is its adjoint added to."""
    prepared = variant.derivative.prepared
    root = next(p.value for p in prepared.function.params if p.name == name)
    promised = promised_roots(prepared.function, variant.options)
    sums = Sums(prepared.structure, Shape(launch.grid, launch.block), known, promised)
    return bytes_read_once(root, prepared.memory, places_of(prepared.structure), sums) is not None


def _added_later(variant: Variant) -> set[str]:
    """What is added to after the launch, or before it is another thing."""
    derivation, facts = variant.derivative, variant.options.facts
    later: set[str] = {*derivation.logged, *derivation.partials, *derivation.copies, *derivation.wide, *facts.unkept}
    return later | {own.of.name for own in derivation.deferred.values()} | derivation.cells.keys()


def _rounds_once(
    variant: Variant, name: str, kernel: Kernel, shape: Shape, launch: KnownLaunch, known: Looking
) -> bool:
    root = _root(variant, name, kernel)
    if root is None:
        return True
    numbers = numbers_in(kernel.function, variant, variant.kernel.function, launch, known)
    sums = Sums(structure.analyse(kernel.function, apart=False), shape, numbers)
    return is_rounded_once(root, roots.analyse(kernel.function), sums)


def _root(variant: Variant, name: str, kernel: Kernel) -> Value | None:
    adjoint = variant.derivative.adjoints[name].name
    return next((p.value for p in kernel.function.params if p.name == adjoint), None)
