"""Shared arrays in random kernels: what was done to each since the last barrier decides what may be done to it next.

Between two barriers an array is only read, at any cell; or each thread uses one cell of its own; or it is only added to
atomically. A thread keeps to that in every order of threads, so that the kernel has no race. Its adjoint has: what many
threads read, many threads add to.
"""

from __future__ import annotations

from math import gcd

from .expressions import BOUNDED, Choices, Real, Variable
from .generator import Generator, Nodes
from .program import Nest

READ, ATOMIC, CLOSED = "read", "atomic", "closed"  # CLOSED: a barrier must come first
OWN = "own "  # followed by the order in which threads have their cells


class Phases(Generator):
    """`width`: how many threads of the block take part, as an expression; their numbers `tid` are below it."""

    def __init__(self, choices: Choices, narrow: str, features: frozenset[str]):
        super().__init__(choices, narrow, features)
        self.state: dict[str, str] = {}  # of shared arrays that were used since the last barrier
        self.types: dict[str, str] = {}  # of their elements
        self.width = "0"
        self.threads = 0  # of a block
        self.whole = True  # whether none of the block's threads has left
        self.counter = ""  # an integer that the block shares
        self.leaving = ""  # how some threads return before the end
        self.groups = False  # whether `block` is in scope

    # ---- reading

    def index(self, size: str) -> str:
        found = super().index(size)
        return self.pick(("i % n", "(i < n ? i : 0)")) if found == "i" else found  # there may be more threads than n

    def visible(self, *kinds: str) -> list[Variable]:
        found = super().visible(*kinds)
        return [v for v in found if v.kind != "shared" or self.state.get(v.name, READ) == READ]

    def arrays(self, kind: str = "cells") -> list[Variable]:
        """Of the shared arrays, those with a cell for each thread, or the small `bins`, or those `wide` enough for more
        than one cell per thread."""
        found = super().visible("shared")
        if kind == "cells":
            return [v for v in found if v.size == 0]
        return [v for v in found if v.name.startswith(kind)]

    def real_atom(self) -> Real:
        arrays = self.visible("shared")
        return self.place_in(self.pick(arrays)) if arrays and self.chance(35) else super().real_atom()

    def place_in(self, variable: Variable) -> Real:
        if variable.kind != "shared":
            return super().place_in(variable)
        self.state[variable.name] = READ
        member = self.pick(variable.members or ("",))
        if variable.columns and self.width.isdigit() and self.chance(50):
            rows, columns = int(self.width) // variable.columns, variable.columns
            return Real(f"{variable.name}[{self.index(str(rows))}][{self.index(str(columns))}]", variable.bound)
        return Real(self.cell(variable, self.some_cell(variable), member), variable.bound)

    def some_cell(self, variable: Variable) -> str:
        """The index of a cell that any number of threads may read."""
        size, shift = self.size(variable), 1 + self.below(5)
        found = [f"(tid + {shift}) % {size}", f"(tid ^ {shift}) % {size}", f"(tid * 7 + {shift}) % {size}"]
        found += [self.index(size)] * 2
        if variable.size == 0:
            found += ["tid", "tid", f"{size} - 1 - tid", "0"]
        return self.pick(found)

    def size(self, variable: Variable) -> str:
        return str(variable.size) if variable.size else self.width

    def cell(self, variable: Variable, index: str, member: str = "") -> str:
        dot = f".{member}" if member else ""
        if not variable.columns:
            return f"{variable.name}[{index}]{dot}"
        index = index if index.isalnum() else f"({index})"
        return f"{variable.name}[{index} / {variable.columns}][{index} % {variable.columns}]{dot}"

    # ---- barriers

    def barrier(self) -> Nodes:
        made = self.sync()
        self.state.clear()
        return made

    def sync(self) -> Nodes:
        if self.groups and self.chance(40):
            return [self.pick(("block.sync();", "cg::sync(block);"))]
        if "votes" in self.features and self.chance(15):
            kind, name = self.pick((("count", "% 5"), ("or", "!= 0"), ("and", "!= 0"))), self.name("u")
            made: Nodes = [f"int {name} = __syncthreads_{kind[0]}({self.truth(1)}) {kind[1]};"]
            self.add(Variable(name, "int", 5, writable=False))
            return made
        return ["__syncthreads();"]

    def settle(self) -> Nodes:
        """A barrier, if anything was done since the last."""
        return self.barrier() if self.state else []

    def claim(self, variable: Variable) -> Nodes:
        """A barrier, if anything was done to the array; then only what knows its cells may use it."""
        made = self.barrier() if variable.name in self.state else []
        self.state[variable.name] = CLOSED
        return made

    def release(self, variable: Variable, state: str = "") -> None:
        """After a claim. Without a state: a barrier has passed since the last use."""
        del self.state[variable.name]
        if state:
            self.state[variable.name] = state

    # ---- writing

    def orders(self) -> list[str]:
        """Expressions that give every thread another cell."""
        found = ["tid", "tid", f"{self.width} - 1 - tid", f"(tid + 3) % {self.width}"]
        if self.width.isdigit():
            threads = int(self.width)
            found += ["tid ^ 1"] if threads % 2 == 0 else []
            found += [f"(tid * 5 + 2) % {threads}"] if gcd(5, threads) == 1 else []
        return found

    def guard(self) -> str:
        has_i = any(v.name == "i" for v in self.visible("int"))
        options = ["tid % 2 == 0", f"tid < {self.width} / 2", self.truth(1)]
        return self.pick([*options, "i < n", "i < n"] if has_i else options)

    def write(self) -> Nodes:
        """Each thread does something to its cell."""
        if not self.arrays():
            return self.statement()
        array = self.pick(self.arrays())
        state = self.state.get(array.name, "")
        made = [] if not state or state.startswith(OWN) else self.barrier()
        order = state.removeprefix(OWN) if state.startswith(OWN) else self.pick(self.orders())
        self.state[array.name] = OWN + order
        cells = [self.cell(array, order, member) for member in array.members or ("",)]
        return [*made, *self.pick((self.assign_cells, self.assign_cells, self.guarded, self.worked_on))(cells)]

    def assign_cells(self, cells: list[str]) -> Nodes:
        return [f"{cell} = {self.bounded()};" for cell in cells]

    def guarded(self, cells: list[str]) -> Nodes:
        guard = self.guard()
        if len(cells) == 1 and guard == "i < n" and self.chance(50):
            return [f"{cells[0]} = i < n ? {self.bounded()} : 0.0;"]
        made = Nest(f"if ({guard}) {{", self.assign_cells(cells))
        if self.chance(60):
            return [made]
        return [Nest("{", [made, Nest("else {", self.assign_cells(cells))])]

    def worked_on(self, cells: list[str]) -> Nodes:
        """Statements in which the cell is a variable like others. What they declare is theirs: pointers to the cell
        would lead to another thread's after the next barrier."""
        self.scopes.append([Variable(cell, "real", level=len(self.scopes) + 1) for cell in cells])
        made = [*self.assign_cells(cells[:1]), *self.statement(), *self.statement()]
        self.scopes.pop()
        return made

    def refill(self) -> Nodes:
        """The threads of the block together write every cell of an array of any size."""
        arrays = self.arrays("bins") + self.arrays("wide")
        if not arrays:
            return self.write()
        array = self.pick(arrays)
        made = self.claim(array)
        made.append(self.fill(array))
        return [*made, *self.barrier()]

    def fill(self, array: Variable) -> Nest:
        j = self.name("j")
        self.scopes.append([Variable(j, "int", array.size, writable=False)])
        value = self.pick(("0", self.bounded()))
        self.scopes.pop()
        head = f"for (int {j} = tid; {j} < {self.size(array)}; {j} += {self.width}) {{"
        return Nest(head, [f"{array.name}[{j}] = {value};"])

    def accumulate(self) -> Nodes:
        """Threads add to cells that they may share."""
        if not self.arrays("bins"):
            return self.write()
        array = self.pick(self.arrays("bins"))
        state = self.state.get(array.name)
        made = [] if state in (None, ATOMIC) else self.barrier()
        self.state[array.name] = ATOMIC
        value = f"{self.pick(('0.1', '-0.05'))} * {self.bounded()}"
        add = f"atomicAdd(&{array.name}[{self.index(str(array.size))}], ({self.types[array.name]})({value}));"
        return [*made, add if self.chance(50) else Nest(f"if ({self.guard()}) {{", [add])]

    # ---- what patterns need

    def one_cell(self, array: Variable, index: str) -> str:
        return self.cell(array, index, array.members[0] if array.members else "")

    def keep(self, value: Real) -> Nodes:
        """A private variable of the value, so that it lasts."""
        text = self.limited(value, BOUNDED).text
        name = self.declare_named()
        return [f"double {name} = {text};", *self.matters(name)]

    def start_real(self) -> tuple[str, str]:
        """The name of a new private variable, and its declaration without the semicolon."""
        value = self.bounded()
        name = self.declare_named()
        return name, f"double {name} = {value}"

    def trips_text(self) -> str:
        """A number of iterations that is known only at run time, and the same for all threads."""
        return self.pick(("n % 3", "n % 4", "n / 64")) if self.returns else self.pick(("m", "m", "m + 1"))

    def matters(self, name: str) -> Nodes:
        """What the kernel's result depends on a new variable by: random statements alone would mostly not use it."""
        form = self.pick(("out += 0.2 * {};", "out += 0.3 * sin({});", "out -= 0.1 * {0} * cos({0});"))
        return [form.format(name)] if self.chance(70) else []

    def using(self, *reals: Real) -> str:
        """A bounded expression of given values and whatever else is in scope."""
        self.scopes.append([Variable(r.text, "real", r.bound, writable=False) for r in reals])
        combined = self.real(1)
        for value in reals:
            right = self.limited(value, BOUNDED).text
            form = self.pick(("({} + {})", "({} * {})", "({} * sin({}))", "({} - 0.5 * {})"))
            combined = Real(form.format(self.limited(combined, BOUNDED).text, right), BOUNDED * BOUNDED)
        self.scopes.pop()
        return self.limited(combined, BOUNDED).text
