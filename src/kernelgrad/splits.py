"""The split form: an augmented forward that returns a tape, and a reverse that consumes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from . import claims
from .autodiff.cooperate import SHARED_BYTES
from .crowds import add_copies, finish_copies
from .errors import ArgumentError, LaunchError
from .finishing import add_partials, finish_partials
from .gradients import Differentiated
from .half_adjoints import in_float
from .hidden import add_shadows, add_tape, elements, stream_of
from .locks import cached_property
from .ordering import Entries, add_logs, finish_logs, logged_in
from .plans import written_by
from .runtime.arguments import Placement
from .runtime.config import Launch, parse_launch
from .runtime.overlap import check_overlap
from .runtime.own import Own
from .variants import Variant, Ways


@dataclass
class Tape:
    """What a forward launch leaves for its reverse: used once, with the same launch shape, then freed."""

    name: str
    launch: Launch
    placement: Placement
    variant: Variant
    own: Own
    logged: Entries  # what the reverse will log
    used: bool = False

    @property
    def nbytes(self) -> int:
        return sum(memory.nbytes for memory in self.own.kept)

    def take(self, name: str, launch: Launch) -> Own:
        if self.used:
            raise LaunchError(f"{name}: this tape was used already; run the forward again")
        if self.name != name:
            raise LaunchError(f"{name}: this tape belongs to {self.name}")
        if (self.launch.grid, self.launch.block) != (launch.grid, launch.block):
            raise LaunchError(
                f"{name}: the tape was written with grid {self.launch.grid} and block {self.launch.block}, not"
                f" {launch.grid} and {launch.block}"
            )
        self.used = True
        own, self.own = self.own, Own()
        return own

    def __repr__(self) -> str:
        return f"<tape of {self.name}, {'used' if self.used else f'{self.nbytes:,} bytes'}>"


class Forward(Differentiated):
    """`tape = forward[grid, block](*arguments)`: runs the kernel and keeps what its reverse needs."""

    def __repr__(self) -> str:
        return f"<augmented forward of {self.kernel!r}>"

    def __getitem__(self, key: Any) -> Callable[..., Tape]:
        launch = parse_launch(key)
        return lambda *args, **keywords: self._launch(launch, args, keywords)

    @cached_property
    def source(self) -> str:
        return self.variant().source(0)

    def _launch(self, launch: Launch, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Tape:
        primal, placement = self.kernel.bind(args, keywords)
        variant = self.variant_for(self.settings.listed, launch, primal, Ways(on_cpu=placement.cuda is None))
        kernel = variant.kernels[0]
        bound, placement = kernel.bind(args)
        if not self.settings.may_alias:
            check_overlap(kernel.function, bound, kernel.written)
        own = Own()
        stream = stream_of(launch, placement)
        sizes = elements(variant, launch, bound, placement)
        add_tape(variant, sizes, launch, placement, stream, own)
        if variant.doubles_shared:
            own.double_shared(launch, SHARED_BYTES, variant.shared_widening)
        claims.add_memory(variant, bound, placement, stream, own)
        kernel.run(own.sized(launch), bound, placement, own.supplied)
        if variant.derivative.claims:
            variant.kernels[2].run(own.sized(launch), bound, placement, own.supplied)
            claims.keep_results(variant, placement, stream, own)
        return Tape(self.kernel.name, launch, placement, variant, own, logged_in(sizes))


class Reverse:
    """`reverse[grid, block](tape, *arguments, *adjoints)`: multiplies the adjoints by the transposed Jacobian."""

    def __init__(self, forward: Forward):
        self.forward = forward

    def __repr__(self) -> str:
        return f"<reverse {self.forward.signature}>"

    def __getitem__(self, key: Any) -> Callable[..., None]:
        launch = parse_launch(key)
        return lambda tape=None, *args, **adjoints: self._launch(launch, tape, args, adjoints)

    @cached_property
    def source(self) -> str:
        return self.forward.variant().source(1)

    def _launch(self, launch: Launch, tape: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
        forward = self.forward
        name = forward.kernel.name
        if not isinstance(tape, Tape):
            raise ArgumentError(
                f"{name}: the first argument is the tape that the forward returned, got {type(tape).__name__}"
            )
        own_args, adjoints = forward.separate(args, keywords)
        variant = tape.variant
        kernel = variant.kernels[1]
        missing = [n for n, adjoint in adjoints.items() if adjoint is None]
        if missing:
            raise ArgumentError(
                f"{name}: the reverse of a split needs every adjoint; list fewer parameters than {missing}"
            )
        forward.check_members(own_args, adjoints)
        copies = Own()
        adjoints = in_float(forward.kernel.function, adjoints, launch, copies, forward.settings.kept)
        bound, placement = kernel.bind((*own_args, *adjoints.values()))
        if not forward.settings.may_alias:
            forward.check_overlap(variant, bound, copies, written_by(variant))
        own = tape.take(name, launch)
        primal, _ = forward.kernel.bind(own_args)
        stream = stream_of(launch, placement)
        add_shadows(variant, primal, placement, stream, own)
        add_partials(variant, launch, placement, stream, own)
        add_copies(variant, bound, placement, stream, own)
        finish_partials(variant, bound, launch, placement, own)
        finish_copies(variant, bound, launch, placement, own)
        add_logs(variant, tape.logged, launch, placement, stream, own)
        finish_logs(variant, bound, launch, placement, own)
        if variant.doubles_shared:
            own.double_shared(launch, SHARED_BYTES, variant.shared_widening)
        kernel.run(own.sized(launch), bound, placement, own.supplied)
        own.finish()
        copies.finish()
