"""Shared arrays that have one purpose: each iteration fills them, and then only reads them.

They need not be kept for the reverse, which can fill them again if every cell that is read was filled just before. Some
of these were: others still hold, in some cells, what an earlier iteration left there.
"""

from __future__ import annotations

from collections.abc import Callable

from .expressions import BOUNDED, SUMS, Real, Variable
from .generator import Nodes
from .patterns import Patterns
from .program import Nest


class Staging(Patterns):
    def staged(self) -> Nodes:
        if not self.everyone:
            return self.pattern()
        options: list[Callable[[], Nodes]] = [self.stage, self.stage]
        if self.width.isdigit():
            options += [self.stage_wide, self.stage_rows]
        return self.pick(options)()

    @property
    def everyone(self) -> bool:
        """Whether no thread below the width is missing."""
        return self.whole or self.width == "B"

    def source(self, index: str) -> str:
        """What a cell is filled with: an element, and what is known at the fill."""
        table = self.pick(self.visible("table")).name
        element = f"{table}[{index}]"
        carried = [v.name for v in self.visible("real") if v.bound <= BOUNDED]
        rows = [
            element,
            element,
            f"sin({element})",
            f"(0.5 * {element} * {element})",
            self.using(Real(element, BOUNDED)),
        ]
        rows += [f"({element} * sin({self.pick(carried)}))"] if carried else []
        return self.pick(rows)

    def around(self, body: Callable[[str, str, str], Nodes]) -> Nodes:
        """The body once, or in a loop; it gets the loop's counter, that it is the first iteration, and where it is."""
        u = self.name("u")
        if self.chance(25):
            return body("0", "true", "0")
        heads = (
            (f"for (int {u} = 0; {u} < n; {u} += {self.width}) {{", f"{u} == 0", u),
            (f"for (int {u} = 0; {u} < m; ++{u}) {{", f"{u} == 0", f"{u} * {self.width}"),
            (f"for (int {u} = 0; {u} < 3; ++{u}) {{", f"{u} == 0", f"{u} * 5"),
            (f"for (int {u} = m; {u} >= 0; --{u}) {{", f"{u} == m", f"{u} * 2"),
        )
        head, first, base = self.pick(heads)
        self.scopes.append([Variable(u, "int", 64, writable=False)])
        made = [*body(u, first, base), "__syncthreads();"]
        self.scopes.pop()
        return [*self.settle(), Nest(head, made)]

    def declare_stage(self, cells: str) -> tuple[str, str]:
        """Its name and declaration, in place."""
        name = self.name("stage")
        return name, f"__shared__ {self.narrow if self.chance(40) else 'double'} {name}{cells};"

    def stage(self) -> Nodes:
        size = self.threads or 64
        name, declaration = self.declare_stage(f"[{size}]")
        (value, start), total = self.start_real(), self.add(Variable(self.name("sum"), "real", SUMS))
        made: Nodes = [declaration, f"{start}, {total} = 0;"]

        def body(u: str, first: str, base: str) -> Nodes:
            order = self.pick(self.orders())
            cell, element = f"{name}[{order}]", f"({base} + {order}) % n"
            filled = self.source(element)
            fills: list[Nodes] = [
                [f"{cell} = {filled};"],
                [f"{cell} = {base} + tid < n ? {self.source(element)} : 0.0;"],
                [f"if ({first} || {base} + tid < n) {cell} = {filled};"],
                [f"if ({first} || {u} % 2 == 0) {cell} = {filled};"],
                [f"if ({first} || {self.truth(1)}) {cell} = {filled};"],
                [f"if ({self.truth(1)}) {cell} = {filled};", f"else {cell} = {self.source(element)};"],
            ]
            return [*self.pick(fills), *self.sync(), *self.uses(name, value, total)]

        made += self.around(body)
        return [*made, *self.matters(value), *self.matters(total)]

    def uses(self, name: str, value: str, total: str) -> Nodes:
        """Reads, by which private variables change."""
        j, w = self.name("j"), self.width
        cell, shift = f"{name}[tid]", 1 + self.below(4)
        loop = f"for (int {j} = 0; {j} < {w}; ++{j}) {{"
        rows: list[Nodes] = [
            [Nest(loop, [f"{total} += 0.1 * {name}[{j}] * {value};"])],
            [Nest(loop, [f"{total} += 0.1 * {name}[{j}] * {name}[(tid + {j}) % {w}];"])],
            [Nest(loop, [f"if (x[{j} % n] > 0.0) {value} = sin({value} + {name}[{j}]);"])],
            [f"{value} = sin({value} * {cell} + {name}[(tid + {shift}) % {w}]);"],
            [f"{value} = 0.5 * {value} + {self.using(Real(f'{name}[{w} - 1 - tid]', BOUNDED))} / 2.0;"],
            [f"{total} += {self.using(Real(f'{name}[{self.index(w)}]', BOUNDED), Real(cell, BOUNDED))};"],
        ]
        return [*self.pick(rows), *(self.pick(rows) if self.chance(40) else [])]

    def stage_wide(self) -> Nodes:
        """More cells than threads: all in a loop, or the ends by some threads."""
        wide, j = self.threads + 2, self.name("j")
        name, declaration = self.declare_stage(f"[{wide}]")
        (value, start), total = self.start_real(), self.add(Variable(self.name("sum"), "real", SUMS))
        made: Nodes = [declaration, f"{start}, {total} = 0;"]

        def body(_: str, __: str, base: str) -> Nodes:
            loop = f"for (int {j} = tid; {j} < {wide}; {j} += {self.width}) {{"
            ends = f"if (tid < 2) {name}[tid * {wide - 1}] = {self.source(f'({base} + tid) % n')};"
            fills: list[Nodes] = [
                [Nest(loop, [f"{name}[{j}] = {self.source(f'({base} + {j}) % n')};"])],
                [f"{name}[tid + 1] = {self.source(f'({base} + tid) % n')};", ends],
            ]
            near = f"{value} = 0.5 * {value} + 0.1 * {name}[tid] * {name}[tid + 2] - 0.2 * {name}[tid + 1];"
            reads = [near] if self.chance(60) else self.uses(name, value, total)
            return [*self.pick(fills), *self.sync(), *reads]

        made += self.around(body)
        return [*made, *self.matters(value), *self.matters(total)]

    def stage_rows(self) -> Nodes:
        """Two tiles, as in a product of matrices."""
        columns = self.pick([c for c in (2, 4, 8) if self.threads % c == 0] or [self.threads])
        rows = self.threads // columns
        (a, declare_a), (b, declare_b) = (
            self.declare_stage(s) for s in (f"[{rows}][{columns}]", f"[{columns}][{rows + 1}]")
        )
        total, j = self.add(Variable(self.name("sum"), "real", SUMS)), self.name("j")
        made: Nodes = [declare_a, declare_b, f"double {total} = 0;"]
        row, column = f"tid / {columns}", f"tid % {columns}"

        def body(_: str, __: str, base: str) -> Nodes:
            fills: Nodes = [
                f"{a}[{row}][{column}] = {self.source(f'({base} + tid) % n')};",
                f"{b}[{column}][{row}] = {self.source(f'({base} + {row} * 3 + {column}) % n')};",
            ]
            product = f"{total} += 0.1 * {a}[{row}][{j}] * {b}[{j}][{self.pick((row, f'tid % {rows}', '0'))}];"
            loop = Nest(f"for (int {j} = 0; {j} < {columns}; ++{j}) {{", [product])
            return [*fills, *self.sync(), loop]

        made += self.around(body)
        return [*made, *self.matters(total)]
