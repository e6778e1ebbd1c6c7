"""Warps in random kernels: shuffles, votes, reductions, in full warps and in those that have fewer threads.

`lane` is the thread's number in its warp, `here` how many lanes the warp has, `mask` their bits. A value that would
come from a lane that is not there is not used.
"""

from __future__ import annotations

from .expressions import BOUNDED, Real, Variable
from .generator import Nodes
from .phases import CLOSED
from .program import Nest
from .staging import Staging

LANES = (
    "int lane = tid & 31;",
    "int here = {left} - (tid - lane) < 32 ? {left} - (tid - lane) : 32;",
    "unsigned mask = here == 32 ? 0xffffffffu : (1u << here) - 1u;",
)


class Warps(Staging):
    warps = False  # whether the lanes are known
    tile = 0  # the size of the cooperative groups' tile

    def warp(self) -> Nodes:
        if not self.warps:
            return self.pattern()
        rows = [self.shuffle] * 3 + [self.warp_reduction] * 2 + [self.warp_scan, self.apart, self.neighbours]
        if "votes" in self.features:
            rows += [self.vote, self.sum_of_integers]
        if self.tile and self.whole:
            rows += [self.of_tile] * 3
        return self.pick(rows)()

    def mask(self) -> str:
        full = self.whole and self.threads % 32 == 0
        return self.pick(("mask", "0xffffffffu", "~0u")) if full else "mask"

    def shuffle(self) -> Nodes:
        width = self.pick((2, 4, 8, 16, 32, 32))
        tail = "" if width == 32 and self.chance(70) else f", {width}"
        by = self.pick((str(self.below(width)), str(self.below(width)), f"(lane * 3 + 1) % {width}", "m"))
        value, kind = self.bounded(), self.pick(("idx", "up", "down", "xor"))
        if kind in ("up", "down") and not by.isdigit() and by != "m":
            by = "1"
        source = {
            "idx": f"(lane & ~{width - 1}) + (({by}) & {width - 1})",
            "up": "lane",
            "down": f"lane + {by}",
            "xor": f"(lane ^ ({by}))",
        }[kind]
        name = {"idx": "__shfl_sync", "up": "__shfl_up_sync", "down": "__shfl_down_sync", "xor": "__shfl_xor_sync"}[
            kind
        ]
        return self._received(f"{name}({self.mask()}, {value}, {by}{tail})", source)

    def _received(self, call: str, source: str) -> Nodes:
        value = self.name("v")
        made: Nodes = [f"double {value} = {call};"]
        if source != "lane" and not (self.whole and self.threads % 32 == 0):
            made.append(f"if ({source} >= here) {value} = {self.bounded()};")
        self.add(Variable(value, "real"))
        return [*made, *self.matters(value)]

    def warp_reduction(self) -> Nodes:
        value, width = self.name("v"), self.pick((4, 8, 16, 32, 32))
        first = "0.1 * " + self.bounded()
        down = self.chance(50)
        call = f"__shfl_{'down' if down else 'xor'}_sync({self.mask()}, {value}, o, {width})"
        far = "lane + o" if down else "(lane ^ o)"
        form = self.pick(
            ("{0} += {1};", "{0} = fmax({0}, {1});", "{0} = 0.6 * {0} + 0.4 * sin({1});", "{0} -= 0.5 * {1};")
        )
        body: Nodes = [f"double got = {call};", f"if ({far} < here) {form.format(value, 'got')}"]
        if self.whole and self.threads % 32 == 0 and self.chance(60):
            body = [form.format(value, call)]
        head = self.pick((f"for (int o = {width // 2}; o > 0; o /= 2) {{", f"for (int o = 1; o < {width}; o <<= 1) {{"))
        return [f"double {value} = {first};", Nest(head, body), *self.keep(Real(value, 26.0))]

    def warp_scan(self) -> Nodes:
        value, width = self.name("v"), self.pick((4, 8, 32))
        first = "0.1 * " + self.bounded()
        form = self.pick(("{0} += {1};", "{0} = 0.5 * {0} + 0.5 * {1} * {1};", "{0} = {0} * 0.5 - {1};"))
        body: Nodes = [f"double got = __shfl_up_sync({self.mask()}, {value}, o, {width});"]
        body.append(f"if ((lane & {width - 1}) >= o) {form.format(value, 'got')}")
        loop = Nest(f"for (int o = 1; o < {width}; o *= 2) {{", body)
        return [f"double {value} = {first};", loop, *self.keep(Real(value, 60.0))]

    def apart(self) -> Nodes:
        """A shuffle among some of the lanes, in a branch."""
        lanes, by = self.pick((2, 4, 8)), self.pick(("1", "0", "2"))
        value, declaration = self.start_real()
        made: Nodes = [f"{declaration};"]
        name = self.pick(("__shfl_xor_sync", "__shfl_sync", "__shfl_down_sync"))
        source = {"x": f"(lane ^ {by})", "s": by, "d": f"lane + {by}"}[name[7] if name[7] in "xd" else "s"]
        call = f"{name}(mask & {hex((1 << lanes) - 1)}u, {self.bounded()}, {by})"
        limit = f"{source} < here && {source} < {lanes}"
        body: Nodes = [f"double got = {call};", f"if ({limit}) {value} = {self.using(Real('got', BOUNDED))};"]
        return [*made, Nest(f"if (lane < {lanes}) {{", body), *self.matters(value)]

    def neighbours(self) -> Nodes:
        """Through shared memory, within a warp."""
        arrays = [v for v in self.arrays() if not v.columns]
        if not arrays:
            return self.shuffle()
        array = self.pick(arrays)
        made = self.claim(array)
        made += [f"{self.one_cell(array, 'tid')} = {self.bounded()};", f"__syncwarp({self.mask()});"]
        index = f"tid - lane + (lane + {1 + self.below(3)}) % here"
        made += self.keep(Real(self.using(Real(self.one_cell(array, index), BOUNDED)), BOUNDED))
        self.state[array.name] = CLOSED
        if self.chance(50):
            made += [f"__syncwarp({self.mask()});", f"{self.one_cell(array, 'tid')} = {self.bounded()};"]
        return made

    def vote(self) -> Nodes:
        name, mask = self.name("k"), self.mask()
        condition = self.truth(1)
        rows = (
            f"int {name} = __any_sync({mask}, {condition});",
            f"int {name} = __all_sync({mask}, {condition});",
            f"int {name} = __popc(__ballot_sync({mask}, {condition}));",
        )
        made: Nodes = [self.pick(rows)]
        self.add(Variable(name, "int", 32))
        return [*made, Nest(f"if ({name} > 0) {{", self.nested(2))] if self.chance(50) else made

    def sum_of_integers(self) -> Nodes:
        name = self.name("k")
        made: Nodes = [f"int {name} = __reduce_add_sync({self.mask()}, ({self.integer(1).text}) % 5) % 13;"]
        self.add(Variable(name, "int", 13, negative=True))
        return made

    def of_tile(self) -> Nodes:
        value, by = self.bounded(), str(self.below(self.tile))
        rows = (
            f"tile.shfl({value}, {by})",
            f"tile.shfl_up({value}, {by})",
            f"tile.shfl_down({value}, {by})",
            f"tile.shfl_xor({value}, {by})",
            f"cg::reduce(tile, 0.1 * {value}, cg::plus<double>())",
            f"cg::reduce(tile, {value}, cg::greater<double>())",
        )
        return self.keep(Real(self.pick(rows), 26.0))
