"""The forms of one derivative: which one a launch gets, by what is known of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ...analysis.roots import holds_pointers
from ...autodiff.accumulate.choice import USUAL, Facts
from ...autodiff.calculus.shadows import holds_halves
from ...autodiff.prepare.options import Options
from ...autodiff.prepare.prepared import Derivations
from ...derivatives.asked.settings import Settings
from ...errors import UnsupportedError
from ...ir.ops import Barrier, BarrierReduce, For, Global, If, Value
from ...ir.traverse import kinds
from ...kernel import Kernel
from ...locks import COMPILING, cached_property
from ...runtime.integers import Extents, KnownLaunch, Looking
from .choose import Chooser, Found
from .variant import Variant

if TYPE_CHECKING:
    from ...analysis.access.outcomes import Outcome
    from .gathers import Gathers, Step
    from .without_copies import WithoutCopies

_MOST_SHARED = 16384  # bytes of dynamic shared memory that a block may have twice


class Forms:
    """Made when they are asked for, each once. `usual`: what holds for most launches. `always`: parameters with an
    adjoint that is always wanted. `derivations` and `gathers` are those of the kernel, for all its derivatives."""

    def __init__(
        self,
        kernel: Kernel,
        settings: Settings,
        usual: Facts = USUAL,
        always: tuple[str, ...] = (),
        derivations: Derivations | None = None,
        gathers: Gathers | None = None,
        rows: Extents | None = None,
        keeps_tiles: bool = False,
    ):
        """`rows`: the block that the kernel is made for, in place of those of its launches. `keeps_tiles`: it was
        chosen already that shared memory is what the kernel reads."""
        self.kernel, self.settings, self.usual, self.always = kernel, settings, usual, always
        self.derivations = derivations or Derivations(kernel.function, kernel.module)
        self._gathers = gathers
        self.made: dict[tuple[tuple[str, ...], Facts], Variant] = {}
        self._choosers: dict[Variant, Chooser] = {}
        self._by_size: dict[int, Forms] = {}  # by the bytes of dynamic shared memory
        self._by_rows: dict[Extents, Forms | None] = {}  # by a launch's block
        self._rows, self._keeps_tiles = rows, keeps_tiles
        # Whether threads of a block wait for each other.
        self._meets = not usual.alone and not kinds(kernel.function.body).isdisjoint((Barrier, BarrierReduce))

    def like(self, settings: Settings) -> Forms:
        """Those of another derivative of the kernel."""
        return Forms(self.kernel, settings, self.usual, self.always, self.derivations, self.gathers_of())

    def of_kernel(self, kernel: Kernel) -> Forms:
        """Those of another kernel that does the same."""
        return Forms(kernel, self.settings, self.usual, self.always)

    def gathers_of(self) -> Gathers:
        if self._gathers is None:
            from .gathers import Gathers

            self._gathers = Gathers(self.kernel, self.derivations)
        return self._gathers

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Those of all launches so far: of the variants, and of gathers."""
        made = self.made.values()
        finished = [kernel for v in made for kernel in (*vars(v).get("kernels", ()), *v.halved.values())]
        return (*finished, *(() if self._gathers is None else self._gathers.kernels))

    def variant(self, wanted: tuple[str, ...] | None = None, facts: Facts | None = None) -> Variant:
        """`wanted`: the listed parameters whose adjoint was given; `facts`: what holds for the launch."""
        listed = self._listed(wanted)
        if facts is not None:
            return self._variant(listed, facts)
        usual = self._variant(listed, self.usual)
        unkept, unheld = usual.typically_unkept, usual.typically_unheld
        return self._variant(listed, replace(self.usual, unkept=unkept, unheld=unheld)) if unkept | unheld else usual

    def _listed(self, wanted: tuple[str, ...] | None) -> tuple[str, ...]:
        listed = self.settings.listed if wanted is None else wanted
        return (*(n for n in listed if n not in self.always), *self.always)

    def _variant(self, listed: tuple[str, ...], facts: Facts) -> Variant:
        found = self.made.get((listed, facts))
        if found is not None:
            return found
        with COMPILING:
            if (listed, facts) not in self.made:
                base = None if (plain := _plainer(facts)) == facts else self._variant(listed, plain)
                options = self._options(listed, facts)
                self.made[listed, facts] = Variant(self.kernel, options, self.derivations, base, self._rows)
            return self.made[listed, facts]

    def _options(self, listed: tuple[str, ...], facts: Facts) -> Options:
        settings = self.settings
        return Options(
            listed,
            tuple(n for n in settings.kept if n in listed and n not in facts.unkept),
            settings.mode,
            settings.may_alias,
            facts,
            deterministic=settings.deterministic,
            promises=settings.promises,
            changing=settings.changing,
            report_nan=settings.report_nan,
        )

    # ---- launches

    def for_launch(self, launch: KnownLaunch) -> Variant:
        """The one whose proofs hold for the launch (rules 8 and 11), and what is fastest there."""
        forms, launch = self._suited(launch)
        return forms.variant(launch.wanted, forms._found(launch).facts)

    def unrefused(self, launch: KnownLaunch) -> Variant | None:
        """The same; None where it is refused, of a launch that need not be made."""
        try:
            return self.for_launch(launch)
        except UnsupportedError:
            return None

    def laid_out(self, launch: KnownLaunch, facts: Facts) -> Variant:
        """That variant with other facts, of how its code is laid out."""
        forms, launch = self._suited(launch)
        return forms.variant(launch.wanted, facts)

    def gathers(self, launch: KnownLaunch) -> Iterator[Step]:
        """The launches that go before that variant's."""
        forms, launch = self._suited(launch)
        if forms is not self:
            yield from forms.gathers(launch)
            return
        found = self._found(launch).gathers
        if found:
            yield from self.gathers_of().stages(found, launch)
        for chosen in found:
            yield from self.gathers_of().launches(chosen, launch, launch.ways.on_cpu)

    def chooser(self, launch: KnownLaunch) -> Chooser:
        """Of the form that says what holds for a launch."""
        forms, launch = self._suited(launch)
        chooser = self._own_chooser(launch) if forms is self else forms.chooser(launch)
        if self._may_read_directly(launch):
            chooser.relevant.add(self._direct.relevant.parts)
        return chooser

    def _own_chooser(self, launch: KnownLaunch) -> Chooser:
        usual, passed, asked = self.variant(launch.wanted), frozenset[Any](), tuple[Value, ...]()
        shape = launch.block if usual.needs_shape(launch.block) else None
        if self._meets and self._branches:
            passed, asked = self._passed(launch)
        if shape is not None or passed:
            usual = self.variant(launch.wanted, replace(self.usual, block=shape or self.usual.block, passed=passed))
        with COMPILING:
            if usual not in self._choosers:
                self._choosers[usual] = Chooser(
                    usual, self.gathers_of, partial(self.variant, launch.wanted), self.settings.tape_budget
                )
            if asked:
                self._choosers[usual].relevant.add(asked)
            return self._choosers[usual]

    def _suited(self, launch: KnownLaunch) -> tuple[Forms, KnownLaunch]:
        """Those of the kernel as it is best analysed for the launch, and the launch as they see it."""
        if self._may_read_directly(launch):
            with COMPILING:
                direct = self._direct.choose(launch)
            if direct is not None:
                return direct, launch
        sized = self._sized(launch)
        forms = sized._in_rows(launch)
        return forms, launch if forms._rows is None else launch._replace(block=forms._rows)

    def reads_directly(self, launch: KnownLaunch) -> bool:
        """Whether memory is read in place of copies of it."""
        return self._may_read_directly(launch) and self._direct.choose(launch) is not None

    def _may_read_directly(self, launch: KnownLaunch) -> bool:
        """What the forward loads once for itself and the reverse is best loaded to a tile."""
        ways, settings = launch.ways, self.settings
        placed = not self._keeps_tiles and ways.on_gpu and not ways.single
        return placed and settings.mode == "reverse" and not settings.may_alias and self.may_have_copies

    @cached_property
    def may_have_copies(self) -> bool:
        """Whether what the kernel reads may be a copy of memory: in a tile, or in what a loop carries."""
        loops = For in kinds(self.kernel.function.body)
        return (self._meets or (loops and not self.usual.alone)) and self._direct.may_have_copies

    @cached_property
    def _direct(self) -> WithoutCopies:
        from .without_copies import WithoutCopies

        return WithoutCopies(self, self.of_kernel)

    def _in_rows(self, launch: KnownLaunch) -> Forms:
        """Those of the kernel for a block of several rows, where it takes the threads of one row as such, and reads in
        loops what rows or columns of them share."""
        placed = launch.ways.on_gpu or launch.ways.on_cpu
        if not self._meets or self._rows is not None or not placed or launch.block[1:] != (1, 1):
            return self
        with COMPILING:
            if launch.block not in self._by_rows:
                self._by_rows[launch.block] = self._made_in_rows(launch)
            forms = self._by_rows[launch.block]
            if forms is None or forms._rows is None:
                return self
            variant = forms.for_launch(launch._replace(block=forms._rows))
            is_kept = bool(variant.places) or variant.derivative.coarse is not None  # by the numbers of threads
            return self if is_kept else forms

    def _made_in_rows(self, launch: KnownLaunch) -> Forms | None:
        from ...transforms import simplify, thread_digits

        function, module, threads = self.kernel.function, self.kernel.module, launch.block[0]
        width = thread_digits.width_of(function, threads)
        if width is None or self.settings.mode == "split" or not self.variant(launch.wanted).shares_in_loops:
            return None
        changed = simplify.run(thread_digits.with_rows(function, threads, width), module)
        kernel = self.kernel.with_function(changed)
        return Forms(
            kernel, self.settings, self.usual, self.always, rows=(width, threads // width, 1), keeps_tiles=True
        )

    def _sized(self, launch: KnownLaunch) -> Forms:
        """Those of the kernel whose dynamic shared memory is an array of the launch's size, where trees are in it, or
        tiles that loops read."""
        nbytes = launch.shared_bytes
        if not self._meets or not 0 < nbytes <= _MOST_SHARED or (variable := self._dynamic) is None:
            return self
        usual = self.variant(launch.wanted)
        if not usual.needs_shape(launch.block) and not usual.shares_in_loops:
            return self
        from ...transforms.static_shared import sized

        with COMPILING:
            if nbytes not in self._by_size:
                module = sized(self.kernel.function, self.kernel.module, variable, nbytes)
                kernel = self.kernel.with_module(module)
                self._by_size[nbytes] = Forms(kernel, self.settings, self.usual, self.always, keeps_tiles=True)
            return self._by_size[nbytes]

    @cached_property
    def _dynamic(self) -> Global | None:
        from ...transforms.static_shared import dynamic_variable

        return dynamic_variable(self.kernel.function, self.kernel.module)

    def _passed(self, launch: KnownLaunch) -> tuple[frozenset[Outcome], tuple[Value, ...]]:
        """What is known of branches around barriers in this launch, and the integers by which it is."""
        from ...analysis import structure
        from ...analysis.access.affine import Shape, Sums
        from ...analysis.access.outcomes import outcomes

        function = self.kernel.function
        looking = Looking(launch.answers(function))
        sums = Sums(structure.analyse(function, apart=False), Shape(launch.grid, launch.block), looking)
        return outcomes(function, self._branches, sums), tuple(looking.asked)

    @cached_property
    def _branches(self) -> tuple[If, ...]:
        from ...analysis.access.outcomes import around_barriers

        return around_barriers(self.kernel.function)

    def _found(self, launch: KnownLaunch) -> Found:
        sizes = self.sizes_of(launch)
        assigned = tuple(n for n in self.settings.assigned if n in sizes)
        return self.chooser(launch).find(launch, sizes, assigned)

    def with_adjoints(self, launch: KnownLaunch) -> KnownLaunch:
        """With adjoints that are as large as their arguments, and aligned."""
        params, found = {p.name: p for p in self.kernel.function.params}, []
        halves = self._halves(launch.wanted)
        for name, adjoint in self.variant(launch.wanted).derivative.adjoints.items():
            if name in params and not holds_pointers(params[name].type):
                found.append((adjoint.name, params[name].type.size))
            own = ((n.removeprefix(name), nbytes) for n, nbytes in launch.sizes if n.partition(".")[0] == name)
            found += [(adjoint.name + path, nbytes * (2 if name in halves else 1)) for path, nbytes in own]
        aligned = (*launch.aligned, *(True for _ in found)) if launch.ways.on_gpu else ()
        return launch._replace(sizes=(*launch.sizes, *found), aligned=aligned, halves=halves)

    def _halves(self, names: tuple[str, ...]) -> frozenset[str]:
        """The parameters of half precision alone."""
        params = [p for p in self.kernel.function.params if p.name in names and holds_halves(p.type)]
        if not params:
            return frozenset()
        from ...transforms.half_steps import half_of

        return frozenset(p.name for p in params if half_of(p.type) is not None)

    def sizes_of(self, launch: KnownLaunch) -> dict[str, int]:
        """The bytes of the wanted buffers. Of one with a shorter adjoint, what is before its end: the launcher may
        write all of an adjoint, and no more."""
        given, adjoints = self.all_sizes(launch), self.variant(launch.wanted).derivative.adjoints
        ends = {name: given[p.name] for name, p in adjoints.items() if p.name in given}
        return {n: min(nbytes, ends.get(n, nbytes)) for n, nbytes in given.items() if n in launch.wanted}

    def all_sizes(self, launch: KnownLaunch) -> dict[str, int]:
        """The bytes of the buffers; those of the source's variables are declared."""
        variables = self.kernel.module.globals
        found = (p for p in self.kernel.function.params if p.variable is not None and p.variable in variables)
        declared = {p.name: variables[p.variable or ""].type.size for p in found}
        return dict(launch.sizes) | declared


def _plainer(facts: Facts) -> Facts:
    """Those of the code of which that for these facts is made."""
    if facts.halves:
        return replace(facts, halves=frozenset())
    return replace(facts, vector=None, rows=None, aligned=frozenset(), interleaved=(), batched=False, slow=False)
