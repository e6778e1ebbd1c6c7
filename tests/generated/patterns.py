"""What blocks of threads are written for: trees, scans, tiles, halos, rings, compaction."""

from __future__ import annotations

from .expressions import BOUNDED, SUMS, Real, Variable
from .generator import Nodes
from .phases import CLOSED, READ, Phases
from .program import Nest

# a is the nearer, b the farther of two cells; how cells are filled before; how large they are afterwards
COMBINE = (
    ("{a} += {b};", "0.1 * {}", 52.0),
    ("{a} = {a} + {b} * 0.5;", "0.1 * {}", 52.0),
    ("{a} *= {b};", "0.9 + 0.01 * {}", 4.0),
    ("{a} = fmax({a}, {b});", "{}", 8.0),
    ("{a} = fmin({a}, {b});", "{}", 8.0),
    ("{a} = 0.5 * {a} + 0.5 * {b};", "{}", 8.0),
    ("{a} = 0.6 * {a} + 0.3 * {b} * sin({a});", "{}", 8.0),
    ("{{ double far = {b}; if (far > {a}) {a} = far; }}", "{}", 8.0),
)

WALKS = (  # over distances d that shrink or grow, with the threads that take part
    ("for (int d = {w} / 2; d > 0; d >>= 1) {{", "tid < d", "}"),
    ("for (int d = {w} / 2; d >= 1; d /= 2) {{", "tid < d", "}"),
    ("for (int d = 32; d > 0; d >>= 1) {{", "tid < d && tid + d < {w}", "}"),
    ("for (int d = 1; d < {w}; d *= 2) {{", "tid % (2 * d) == 0 && tid + d < {w}", "}"),
    ("for (unsigned d = {w} / 2; d > 0; d >>= 1) {{", "tid < (int)d", "}"),
)


class Patterns(Phases):
    def pattern(self) -> Nodes:
        rows = (
            ("trees", self.tree),
            ("scans", self.scan),
            ("scans", self.buffered_scan),
            ("tiles", self.tiles),
            ("tiles", self.halo),
            ("rings", self.ring),
            ("rings", self.swapped),
            ("pairs", self.pairs),
            ("pairs", self.sweeps),
            ("compaction", self.compaction),
        )
        made = [make for feature, make in rows if feature in self.features] or [self.write]
        return self.pick(made)()

    def restored(self, array: Variable) -> Nodes:
        """Cells that grew become small again."""
        self.release(array, "own tid")
        return [f"{self.one_cell(array, 'tid')} = {self.bounded()};"]

    def tree(self) -> Nodes:
        if not self.arrays():
            return self.statement()
        array = self.pick(self.arrays())
        combine, filled, bound = self.pick(COMBINE)
        head, condition, tail = (text.replace("{w}", self.width).replace("{{", "{") for text in self.pick(WALKS))
        made = self.claim(array)
        made += [f"{self.one_cell(array, 'tid')} = {filled.format(self.bounded())};", *self.sync()]
        step = combine.format(a=self.one_cell(array, "tid"), b=self.one_cell(array, "tid + (int)d"))
        if head.startswith("for (int") and self.chance(30):  # the same as a while loop
            start, test, move = head.removeprefix("for (").removesuffix(") {").split("; ")
            loop = Nest(f"while ({test}) {{", [f"if ({condition}) {step}", "__syncthreads();", f"{move};"])
            made.append(Nest("{", [f"{start};", loop]))
        else:
            made.append(Nest(head, [f"if ({condition}) {step}", "__syncthreads();"], tail))
        made += self.keep(Real(self.one_cell(array, self.pick(("0", "0", f"(tid + 1) % {self.width}"))), bound))
        if bound > 8 or self.chance(50):
            return [*made, "__syncthreads();", *self.restored(array)]
        self.release(array, READ)
        return made

    def scan(self) -> Nodes:
        """Each cell with those before it, in place."""
        if not self.arrays():
            return self.statement()
        array, value = self.pick(self.arrays()), self.name("far")
        own, far = self.one_cell(array, "tid"), self.one_cell(array, "tid - d")
        combine, filled, bound = self.pick(COMBINE[:-1])
        made = self.claim(array)
        made += [f"{own} = {filled.format(self.bounded())};", *self.sync()]
        step = combine.format(a=value, b=far)
        body: Nodes = [f"double {value} = {own};", f"if (tid >= d) {step}", "__syncthreads();"]
        body += [f"{own} = {value};", "__syncthreads();"]
        made.append(Nest(f"for (int d = 1; d < {self.width}; d *= 2) {{", body))
        made += self.keep(Real(self.one_cell(array, "tid"), bound))
        return [*made, "__syncthreads();", *self.restored(array)]

    def buffered_scan(self) -> Nodes:
        """The same from one half of an array to the other."""
        arrays = [v for v in self.arrays("wide") if v.size >= 2 * self.threads]
        if not arrays:
            return self.scan()
        array, value, side = self.pick(arrays), self.name("far"), self.name("side")
        combine, filled, bound = self.pick(COMBINE[5:-1])
        made = self.claim(array)
        made += [f"{array.name}[tid] = {filled.format(self.bounded())};", f"int {side} = 0;", *self.sync()]
        from_ = f"{array.name}[{side} * {self.threads} + tid"
        body: Nodes = [
            f"double {value} = {from_}];",
            f"if (tid >= d) {combine.format(a=value, b=f'{from_} - d]')}",
            self.pick((f"{side} = 1 - {side};", f"{side} ^= 1;")),
            f"{from_}] = {value};",
            "__syncthreads();",
        ]
        made.append(Nest(f"for (int d = 1; d < {self.width}; d <<= 1) {{", body))
        self.release(array)
        self.state[array.name] = READ
        return [*made, *self.keep(Real(f"{from_}]", bound))]

    def tiles(self) -> Nodes:
        """A buffer of any length, as many elements at a time as there are threads."""
        if not self.arrays():
            return self.statement()
        array, base, j = self.pick(self.arrays()), self.name("base"), self.name("j")
        made = self.claim(array)
        total = self.name("sum")
        table = self.pick(("x", "w")) if any(v.name == "w" for v in self.visible("table")) else "x"
        value = self.using(Real(f"{table}[{base} + tid]", 8.0))
        own, seen = self.one_cell(array, "tid"), self.one_cell(array, j)
        stale = f"({self.width} < n - {base} ? {self.width} : n - {base})"  # cells behind the tail keep what they had
        fill, limit = self.pick(
            (
                (f"if ({base} + tid < n) {own} = {value};", stale),
                (f"{own} = {base} + tid < n ? {value} : 0.0;", self.pick((self.width, stale))),
            )
        )
        self.scopes.append([Variable(j, "int", 64, writable=False)])
        inner = Nest(
            f"for (int {j} = 0; {j} < {limit}; ++{j}) {{", [f"{total} += 0.1 * {self.using(Real(seen, 8.0))};"]
        )
        self.scopes.pop()
        body: Nodes = [fill, "__syncthreads();", inner, "__syncthreads();"]
        made += [f"double {total} = 0;", Nest(f"for (int {base} = 0; {base} < n; {base} += {self.width}) {{", body)]
        self.add(Variable(total, "real", SUMS))
        self.release(array)
        return [*made, *self.matters(total)]

    def halo(self) -> Nodes:
        arrays = [v for v in self.arrays("wide") if v.size >= self.threads + 2]
        if not arrays or not self.has_i():
            return self.tiles()
        array = self.pick(arrays)
        s = array.name
        made = self.claim(array)
        made.append(f"{s}[tid + 1] = {self.using(Real('x[i % n]', 8.0))};")
        left, right = self.using(Real("x[(i + n - 1) % n]", 8.0)), self.using(Real("x[(i + 1) % n]", 8.0))
        ends = [f"if (tid == 0) {s}[0] = {left};", f"if (tid == {self.width} - 1) {s}[{self.width} + 1] = {right};"]
        made += ends if self.chance(70) else [f"if (tid == 0) {{ {s}[0] = {left}; {s}[{self.width} + 1] = {left}; }}"]
        made += self.sync()
        near = Real(f"({s}[tid] - 2.0 * {s}[tid + 1] + {s}[tid + 2])", 32.0)
        made += self.keep(Real(self.using(near, Real(f"{s}[tid + 1]", 8.0)), 8.0))
        self.release(array, READ)
        return made

    def has_i(self) -> bool:
        return any(v.name == "i" for v in self.visible("int"))

    def ring(self) -> Nodes:
        """Rows that are written in turn, with one barrier per row: the one written next is not read now."""
        arrays = [v for v in self.arrays("wide") if v.size >= 2 * self.threads]
        if not arrays:
            return self.tiles()
        array, j = self.pick(arrays), self.name("j")
        rows = array.size // self.threads
        made = self.claim(array)
        value, declaration = self.start_real()
        made.append(f"{declaration};")
        index = (f"{j} % {rows}", f"({j} + {rows - 1}) % {rows}")
        self.scopes.append([Variable(j, "int", 8, writable=False)])
        cells = [f"{array.name}[({r}) * {self.threads} + {self.pick(self.orders())}]" for r in index[: rows - 1]]
        body: Nodes = [f"{array.name}[({index[0]}) * {self.threads} + tid] = {self.bounded()};", "__syncthreads();"]
        body.append(f"{value} = {self.using(*(Real(c, 8.0) for c in cells))};")
        self.scopes.pop()
        head = f"for (int {j} = 0; {j} < {self.pick((self.trips_text(), '3', '4'))}; ++{j}) {{"
        made.append(Nest(head, body))
        self.release(array, READ)
        return [*made, *self.matters(value)]

    def swapped(self) -> Nodes:
        """Two arrays of which each in turn is made of the other."""
        arrays = [v for v in self.arrays() if not v.columns and not v.members]
        if len(arrays) < 2:
            return self.ring()
        first, *others = arrays
        second = self.pick(others)
        type = self.types.get(first.name, "double")
        if self.types.get(second.name, "double") != type:
            return self.ring()
        made = [*self.claim(first), *self.claim(second)]
        names = self.name("from"), self.name("to")
        other, j = self.name("other"), self.name("j")
        made += [f"{type} *{names[0]} = {first.name}, *{names[1]} = {second.name};"]
        self.state[first.name] = CLOSED  # the second claim's barrier opens it
        self.scopes.append([Variable(j, "int", 8, writable=False)])
        cells = [Real(f"{names[0]}[{self.pick(self.orders())}]", BOUNDED) for _ in range(1 + self.below(2))]
        body: Nodes = [f"{names[1]}[{self.pick(self.orders())}] = {self.using(*cells)};", "__syncthreads();"]
        body.append(f"{type} *{other} = {names[0]}; {names[0]} = {names[1]}; {names[1]} = {other};")
        self.scopes.pop()
        made.append(Nest(f"for (int {j} = 0; {j} < {self.pick((self.trips_text(), '2', '3'))}; ++{j}) {{", body))
        made += self.keep(Real(f"{names[0]}[{self.pick(self.orders())}]", BOUNDED))
        self.release(first, READ)
        self.release(second, READ)
        return made

    def pairs(self) -> Nodes:
        """One thread of two changes both cells, as sorting networks do."""
        if not self.arrays():
            return self.statement()
        array, other = self.pick(self.arrays()), self.name("other")
        low, high = self.one_cell(array, "tid"), self.one_cell(array, other)
        change = self.pick(
            (
                f"if ({low} > {high}) {{ double kept = {low}; {low} = {high}; {high} = kept; }}",
                f"if (({low} > {high}) == (tid % 4 < 2)) {{ double kept = {low}; {low} = {high}; {high} = kept; }}",
                f"{{ double kept = {low}; {low} = 0.6 * kept + 0.4 * {high}; {high} = kept * sin({high}); }}",
                f"{{ {low} = 0.7 * {low} + 0.3 * {high}; {high} = 0.5 * {high} - 0.2 * {low} * {low}; }}",
            )
        )
        made = self.claim(array)
        made += [f"{low} = {self.bounded(1)};", *self.sync()]
        body: Nodes = [
            f"int {other} = tid ^ d;",
            f"if ({other} > tid && {other} < {self.width}) {change}",
            "__syncthreads();",
        ]
        inner = Nest(self.pick(("for (int d = 1; d < 8; d *= 2) {", "for (int d = 4; d > 0; d /= 2) {")), body)
        r = self.name("r")
        made.append(
            Nest(f"for (int {r} = 0; {r} < {self.pick(('2', self.trips_text()))}; ++{r}) {{", [inner])
            if self.chance(40)
            else inner
        )
        made += self.keep(Real(self.one_cell(array, self.pick(self.orders())), BOUNDED))
        self.release(array, READ)
        return made

    def sweeps(self) -> Nodes:
        """A scan by a tree: up and down again."""
        if not self.arrays() or not self.width.isdigit():
            return self.scan()
        array = self.pick(self.arrays())
        threads = int(self.width)
        near, far = "(2 * tid + 1) * d - 1", "(2 * tid + 2) * d - 1"
        a, b = self.one_cell(array, near), self.one_cell(array, far)
        made = self.claim(array)
        made += [f"{self.one_cell(array, 'tid')} = 0.1 * {self.bounded()};", *self.sync()]
        guard = f"if ((2 * tid + 2) * d <= {threads})"
        up: Nodes = [f"{guard} {b} += {a};", "__syncthreads();"]
        down: Nodes = [f"{guard} {{ double left = {a}; {a} = {b}; {b} += left * {self.pick(('1.0', 'cos(left)'))}; }}"]
        made.append(Nest(f"for (int d = 1; d < {threads}; d *= 2) {{", up))
        made += [f"if (tid == 0) {self.one_cell(array, str(threads - 1))} = 0.25;", "__syncthreads();"]
        made.append(Nest(f"for (int d = {_power(threads)}; d > 0; d /= 2) {{", [*down, "__syncthreads();"]))
        made += self.keep(Real(self.one_cell(array, "tid"), 52.0))
        return [*made, "__syncthreads();", *self.restored(array)]

    def compaction(self) -> Nodes:
        """Places that threads get by counting, in any order; what is there is summed, so that the order is no matter.

        The values must not depend on the order in any other way either: they are private before.
        """
        if not self.arrays() or not self.counter:
            return self.tree()
        array, j, slot, total = self.pick(self.arrays()), self.name("j"), self.name("slot"), self.name("sum")
        made = self.claim(array)
        down = self.whole and self.chance(30)
        start = self.width if down else "0"
        made += [f"if (tid == 0) {self.counter} = {start};", "__syncthreads();"]
        take = f"int {slot} = atomic{'Sub' if down else 'Add'}(&{self.counter}, 1){' - 1' if down else ''};"
        cell = self.one_cell(array, slot)
        made += [Nest(f"if ({self.truth(1)}) {{", [take, f"{cell} = {self.bounded()};"]), *self.sync()]
        self.scopes.append([Variable(j, "int", 64, writable=False)])
        seen = self.limited(Real(self.one_cell(array, j), 8.0), 8.0).text
        # What else the sum is made of must not know j, which says in which order the threads came.
        self.scopes[-1] = []
        factor = self.bounded()
        self.scopes.pop()
        bounds = f"{j} = {self.counter}; {j} < {self.width}" if down else f"{j} = 0; {j} < {self.counter}"
        form = self.pick(("{} * {}", "{1} * sin({0})", "{} * {} * 0.5")).format(seen, factor)
        body: Nodes = [f"{total} += 0.1 * {form};"]
        made += [f"double {total} = 0;", Nest(f"for (int {bounds}; ++{j}) {{", body), "__syncthreads();"]
        self.add(Variable(total, "real", SUMS))
        return [*made, *self.matters(total), *self.restored(array)]


def _power(threads: int) -> int:
    """Half of the smallest power of two that is not below."""
    return 1 << (threads - 1).bit_length() - 1
