"""Random kernels whose threads cooperate: phases between barriers, in loops and branches that a block takes as one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from .expressions import BOUNDED, SUMS, Choices, Variable
from .generator import FEATURES, PAIR, FromRandom, Nodes, some_numbers
from .phases import CLOSED
from .program import Nest, Program
from .warps import LANES
from .winners import FUNCTIONS, Winners

TOGETHER = tuple(
    "rows structs dynamic bins wide global warps votes groups together branches loops leave trees scans tiles rings"
    " pairs stages compaction winners".split()
)

LAUNCHES = (  # blocks and threads
    ((1, 1), (8, 1)),
    ((2, 1), (16, 1)),
    ((3, 1), (24, 1)),
    ((1, 1), (32, 1)),
    ((2, 1), (32, 1)),
    ((1, 1), (40, 1)),
    ((2, 1), (64, 1)),
    ((1, 2), (4, 4)),
    ((2, 1), (8, 5)),
    ((1, 1), (16, 4)),
    ((2, 1), (11, 1)),
)

LEAVING = ("first", "later", "later", "blocks", "scattered", "loops", "loops")


def random_cooperating(seed: int, size: int = 14) -> Program:
    return generate(FromRandom(seed), size)


def generate(choices: Choices, size: int) -> Program:
    """`size`: about how many things a block does, at most."""
    alone = {f for f in FEATURES if f != "return" and choices.below(100) < 30}
    features = frozenset(alone | {f for f in TOGETHER if choices.below(100) < 55}) | some_numbers(choices)
    narrow = "float" if "narrow" in features and choices.below(3) == 0 else "double"
    if narrow == "float":  # winners are compared with finite differences, since forward mode has none
        features -= {"winners"}
    return Cooperating(choices, narrow, features, size).program()


class Cooperating(Winners):
    def __init__(self, choices: Choices, narrow: str, features: frozenset[str], size: int):
        super().__init__(choices, narrow, features)
        self.most = size
        self.grid, self.block = self.pick(LAUNCHES)
        self.threads = self.block[0] * self.block[1]
        self.dynamic = 0  # arrays
        self.barrier_functions: list[str] = []
        self.deep = 0

    def program(self) -> Program:
        functions = [self.function() for _ in range(self.below(2))] if "functions" in self.features else []
        if "together" in self.features:
            functions += [self.barrier_function() for _ in range(1 + self.below(2))]
        total = self.threads * self.grid[0] * self.grid[1]
        n = self.pick((total - 3, total, 5 + self.below(total), total + 7))
        kernel = self.kernel(self.block[1] > 1 or self.grid[1] > 1)
        size = 4 if self.types.get("dyn") == "float" else 8
        groups = (
            "#include <cooperative_groups.h>",
            "#include <cooperative_groups/reduce.h>",
            "namespace cg = cooperative_groups;",
        )
        winners = (FUNCTIONS,) if "winners" in self.features else ()
        return Program(
            functions, kernel, self.narrow, self.list_parameters(), self.grid, self.block, n, self.below(5),
            self.below(1000), self.features, True, self.dynamic * self.threads * size,
            (*(groups if self.groups else ()), f"struct V {{ {self.narrow} u, v; }};", *winners),
        )  # fmt: skip

    # ---- functions

    def kernel(self, two_axes: bool) -> Nest:
        self.leaving = self.pick(LEAVING) if "leave" in self.features else ""
        if self.leaving == "loops":  # in which what comes first also runs without those who left
            self.features = self.features - {"warps", "compaction"} | {"loops"}
        self.scopes, self.returns, self.trips = [self.parameters()], "", 1
        self.budget = 3 + self.below(self.pick((4, (4 + self.most) // 2, self.most)))
        threads = str(self.threads)
        self.width, self.whole = ("B" if self.leaving == "first" else threads), self.leaving not in ("first", "loops")
        body: Nodes = [*self.declarations(), *_index(two_axes, threads)]
        if self.leaving == "first":
            body += [
                "if (i >= n) return;",
                f"int B = n - bid * {threads} < {threads} ? n - bid * {threads} : {threads};",
            ]
            self.leaving = ""
        body += ["double out = 0;", *self.start()]
        body += self.together(20)
        if self.leaving == "loops":
            self.budget += 4
            body += self.repeat()
        elif self.leaving:
            body += self.leave() + self.together(4)
        body += self.finish()
        return Nest(self.head(self.pick(("const ", "")), self.pick(("", " __restrict__"))), body)

    def finish(self) -> Nodes:
        """Outputs of what the private variables and the shared arrays hold."""
        made = self.settle()
        cells = [f"0.3 * {self.place_in(v).text}" for v in self.arrays()]
        first = f"y[2 * i] = {' + '.join([self.bounded(), '0.2 * out', *cells])};"
        second = f"y[2 * i + 1] {self.pick(('=', '+=', '-='))} {self.bounded()};"
        last: Nodes = [first, second] if self.chance(50) else [first]
        return [*made, Nest("if (i < n) {", last)] if self.chance(60) else [*made, *last]

    def parameters(self) -> list[Variable]:
        total = self.threads * self.grid[0] * self.grid[1]
        ints = (("n", total + 7), ("m", 4), ("i", total), ("tid", self.threads), ("bid", 3))
        scope = [
            Variable("y", "slots", elements=PAIR),
            Variable("q", "record_slots", elements=("i",)),
            Variable("x", "table", writable=False),
            Variable("w", "table", writable=False),
            Variable("ps", "record_table", writable=False),
            Variable("idx", "int_table", writable=False),
            Variable("c", "int_slots", elements=("i",)),
            Variable("a", "real", writable=False),  # conditions of the whole block are about it
            Variable("b", "real"),
            Variable("p", "record"),
            Variable("out", "real", SUMS),
            *(Variable(name, "int", bound, writable=False) for name, bound in ints),
        ]
        if "global" in self.features:
            scope.append(Variable("g", "shared"))
        elif "scratch" in self.features:
            scope.append(Variable("t", "slots", elements=PAIR))
        return scope

    def declarations(self) -> Nodes:
        """Of shared arrays."""
        made: Nodes = []
        for _ in range(1 + self.below(3)):
            made.append(self.declare_shared())
        if "bins" in self.features:
            made.append(self.declare_bins())
        if {"wide", "rings"} & self.features:
            made.append(
                self.declare_sized("wide", self.pick((self.threads + 2, 2 * self.threads, 3 * self.threads)), BOUNDED)
            )
        if "winners" in self.features:
            made.append(self.declare_sized("best", 1, BOUNDED))
        if "compaction" not in self.features:
            return made
        if self.chance(30):
            self.counter = "c[bid]"
            self.scopes[0] = [v for v in self.scopes[0] if v.name != "c"]
            return made
        self.counter = "count"
        return [*made, "__shared__ int count;"]

    def type(self) -> str:
        return self.narrow if self.chance(40) else "double"

    def declare_shared(self) -> str:
        kinds = ["line", *(k for k in ("rows", "structs", "dynamic") if k in self.features)]
        kind, name, type = self.pick(kinds), self.name("s"), self.type()
        if kind == "dynamic":
            return self.declare_dynamic(type)
        columns = self.pick([c for c in (2, 4, 8) if self.threads % c == 0] or [self.threads]) if kind == "rows" else 0
        members = ("u", "v") if kind == "structs" else ()
        self.scopes[0].append(Variable(name, "shared", columns=columns, members=members))
        self.types[name] = type
        if columns:
            return f"__shared__ {type} {name}[{self.threads // columns}][{columns + self.below(2)}];"
        return f"__shared__ {'V' if members else type} {name}[{self.threads}];"

    def declare_dynamic(self, type: str) -> str:
        first, whole = self.dynamic == 0, self.types.get("dyn", type)
        if first or whole == "float":
            type = whole
        name = "dyn" if first else self.name("s")
        offset = self.dynamic * self.threads
        self.dynamic += 1
        self.types[name] = type
        self.scopes[0].append(Variable(name, "shared"))
        if first:
            return f"extern __shared__ {type} dyn[];"
        return f"{type} *{name} = {'' if type == whole else '(float *)'}(dyn + {offset});"

    def declare_sized(self, name: str, size: int, bound: float) -> str:
        self.types[name] = self.type()
        self.scopes[0].append(Variable(name, "shared", bound, size))
        return f"__shared__ {self.types[name]} {name}[{size}];"

    def declare_bins(self) -> str:
        size = 2 + self.below(4)
        if "global" not in self.features or self.chance(60):
            return self.declare_sized("bins", size, SUMS)
        self.types["bins"] = "double"
        self.scopes[0].append(Variable("bins", "shared", SUMS, size))
        blocks, block = self.grid[0] * self.grid[1], "(blockIdx.y * gridDim.x + blockIdx.x)"
        return f"double *bins = t + {blocks * self.threads} + {block} * {size};"

    def start(self) -> Nodes:
        """Every cell gets a value."""
        made: Nodes = [f"double *g = t + bid * {self.threads};"] if "global" in self.features else []
        if "groups" in self.features:
            self.groups, self.tile = True, self.pick([s for s in (4, 8, 16, 32) if self.threads % s == 0] or [1])
            made += ["cg::thread_block block = cg::this_thread_block();"]
            made += [f"auto tile = cg::tiled_partition<{self.tile}>(block);"]
            self.tile = self.tile if self.tile > 1 else 0
        if "warps" in self.features:
            self.warps = True
            made += [line.format(left=self.width) for line in LANES]
        arrays = [v for v in self.arrays() if v.name != "g"]
        sized = self.arrays("bins") + self.arrays("wide") + self.arrays("best")
        self.state = {v.name: CLOSED for v in (*arrays, *sized)}
        made += [f"{self.cell(v, 'tid', member)} = {self.bounded()};" for v in arrays for member in v.members or ("",)]
        made += [self.fill(v) for v in sized]
        return [*made, *self.barrier()]

    def barrier_function(self) -> Nest:
        """A device function that all threads of a block call together."""
        name = self.name("f")
        ints = (("n", 200), ("tid", 64), ("threads", 64))
        scope = [
            Variable("cells", "shared"),
            Variable("v", "real"),
            Variable("out", "real", SUMS),
            Variable("x", "table", writable=False),
            *(Variable(name, "int", bound, writable=False) for name, bound in ints),
        ]
        self.scopes, self.returns, self.trips, self.state = [scope], "double", 4, {}
        outer, self.width, self.deep = self.width, "threads", 2
        self.budget = 2 + self.below(4)
        body: Nodes = ["double out = 0;", *(self.write() if self.chance(60) else [])]
        body += self.together(8)
        seen = self.place_in(scope[0]).text if "cells" not in self.state else "v"
        body += [f"double result = {self.bounded(4)} + 0.5 * {seen} + 0.01 * out;", *self.barrier(), "return result;"]
        self.returns, self.trips, self.width, self.deep = "", 1, outer, 0
        self.barrier_functions.append(name)
        head = f"__device__ double {name}(double *cells, double v, const double *x, int n, int tid, int threads) {{"
        return Nest(head, body)

    # ---- statements of the block

    def together(self, most: int) -> Nodes:
        found: Nodes = []
        for _ in range(most):
            if self.budget <= 0:
                break
            found += self.step()
        return found

    def step(self) -> Nodes:
        self.budget -= 1
        options: list[Callable[[], Nodes]] = [self.statement] * 2 + [self.write] * 5 + [self.settle]
        options += [self.accumulate] * 2 + [self.refill] + [self.pattern] * 4
        if self.returns:
            return self.pick(options)()
        if "stages" in self.features:
            options += [self.staged] * 5
        options += [self.warp] * 6
        if "winners" in self.features:
            options += [self.winner] * 3
        if self.barrier_functions:
            options += [self.call_together] * 2
        if self.leaving and self.deep == 0 and self.leaving != "loops":
            options.append(self.leave)
        if self.deep < 2:
            options += [self.branch] * (2 if "branches" in self.features else 0)
            options += [self.repeat] * (4 if "loops" in self.features else 0)
        return self.pick(options)()

    def _kinds(self, deep: bool) -> list[tuple[str | None, int, Callable[[], Nodes]]]:
        """A thread alone does not return: the others would wait for it."""
        return [row for row in super()._kinds(deep) if row[0] != "return" or self.in_plain_function]

    @property
    def in_plain_function(self) -> bool:
        return bool(self.returns) and not self.width.isalpha()

    def leave(self) -> Nodes:
        """Some threads return between two barriers."""
        made, style = self.settle(), self.leaving
        self.leaving = ""
        if style == "blocks":
            return [*made, f"if (bid * {self.threads} >= n) return;"]
        self.whole = False
        if style == "later":
            left = f"(n - bid * {self.threads} < {self.threads} ? n - bid * {self.threads} : {self.threads})"
            made.append("if (i >= n) return;")
            return [*made, *(_again(line.format(left=left)) for line in LANES[1:])] if self.warps else made
        self.warps, self.counter = False, ""  # nobody knows who is left
        return [*made, f"if ({self.pick(('x[i % n] > 1.2', 'tid % 4 == 1', 'idx[i % n] < 5'))}) return;"]

    def call_together(self) -> Nodes:
        arrays = [
            v for v in self.arrays() if not v.columns and not v.members and self.types.get(v.name, "double") == "double"
        ]
        if not arrays:
            return self.write()
        array, name = self.pick(arrays), self.pick(self.barrier_functions)
        made = self.claim(array)
        value = self.bounded()
        self.release(array)
        call = f"{name}({array.name}, {value}, x, n, tid, {self.width})"
        result = self.declare_named()
        return [*made, f"double {result} = {call};", *self.matters(result)]

    # ---- control that the block takes as one

    def uniform(self) -> tuple[Nodes, str]:
        """A condition that is the same for all threads of a block, and what must come before it."""
        rows = ["m > 2", "m % 2 == 0", "n > 20", "a > 0.1", "x[0] > 0.2", "x[bid % n] < 0.3", "idx[0] > 9", "bid == 0"]
        rows += [f"{c} % 2 == 0" for c in self.uniform_integers()] * 4
        arrays = self.arrays()
        if arrays and self.chance(25):
            return self.uniform_of(self.pick(arrays))
        if "votes" in self.features and self.chance(20):
            return self.voted()
        return [], self.pick(rows)

    def uniform_integers(self) -> list[str]:
        return [v.name for v in self.visible("int") if v.name.startswith("u")]

    def uniform_of(self, array: Variable) -> tuple[Nodes, str]:
        made = self.claim(array)
        flag = self.name("flag")
        first = self.one_cell(array, str(self.below(2)) if self.whole else "0")
        made.append(f"bool {flag} = {first} > {self.pick(('0.0', '0.5'))};")
        return [*made, *self.barrier()], flag

    def voted(self) -> tuple[Nodes, str]:
        flag = self.name("flag")
        made: Nodes = [f"bool {flag} = __syncthreads_{self.pick(('or', 'and', 'count'))}({self.truth(1)}) != 0;"]
        self.state.clear()
        return made, flag

    def inside(self, most: int, extra: tuple[Variable, ...] = ()) -> Nodes:
        self.scopes.append([replace(v, level=len(self.scopes)) for v in extra])
        leaving, self.leaving = self.leaving, ""
        self.deep += 1
        self.budget = max(self.budget, 1)
        made = self.together(1 + self.below(most))
        self.deep -= 1
        self.leaving = leaving
        self.scopes.pop()
        return made

    def settle_inside(self) -> Nodes:
        """As settle, where the scope of the text is no longer open: nothing is declared."""
        made: Nodes = ["__syncthreads();"] if self.state else []
        self.state.clear()
        return made

    def branch(self) -> Nodes:
        made, condition = self.uniform()
        before = dict(self.state)
        first = self.inside(4)
        after, self.state = self.state, before
        second = self.inside(3) if self.chance(50) else []
        self.state = _merged(after, self.state)
        then = Nest(f"if ({condition}) {{", first)
        return [*made, Nest("{", [then, Nest("else {", second)]) if second else then]

    def repeat(self) -> Nodes:
        if self.trips > 6:
            return self.branch()
        made = self.settle()
        u = self.name("u")
        heads: list[tuple[str, str, str, int]] = [
            ("", f"for (int {u} = 0; {u} < {1 + self.below(3)}; ++{u}) {{", "}", 3),
            ("", f"for (int {u} = 0; {u} < m; ++{u}) {{", "}", 4),
            ("", f"for (int {u} = m; {u} > 0; --{u}) {{", "}", 4),
            ("", f"for (int {u} = {self.width} / 2; {u} > 0; {u} >>= 1) {{", "}", 6),
            (f"int {u} = 0;", f"while ({u}++ < m) {{", "}", 4),
            (f"int {u} = 0;", "do {", f"}} while (++{u} < {self.pick(('m', '2', '3'))});", 4),
            (f"int {u} = m;", f"while ({u} > 0 && a < 1.5) {{", f"    --{u};\n}}", 4),
        ]
        heads += [("", f"for (int {u} = {v}; {u} > 0; --{u}) {{", "}", 5) for v in self.uniform_integers()] * 2
        start, head, tail, most = self.pick(heads)
        self.trips *= most
        body = self.inside(4, (Variable(u, "int", 64, writable=False),))
        if self.leaving == "loops" and self.chance(60):
            guard = self.pick(("i >= n", f"tid % 4 == {u}", f"x[i % n] > 0.8 + {u}", f"i >= n && {u} == 1"))
            leave = Nest(f"if ({guard}) {{", ["y[2 * i] += 0.1 * out;", "return;"]) if self.chance(25) else guard
            body += [*self.settle_inside(), f"if ({guard}) return;" if leave is guard else leave, *self.inside(2)]
        if self.chance(20) and "--" not in tail:
            body += [*self.settle_inside(), f"if ({self.pick((f'{u} > 2', 'm == 3', f'idx[{u} % n] > 12'))}) break;"]
            if self.chance(50):
                body += self.inside(2)
        body += self.settle_inside()
        if self.leaving == "loops" and self.chance(40) and "--" not in tail:
            body.append(f"if ({self.pick(('i >= n', f'tid % 5 == {u}', f'x[i % n] > 0.9 + {u}'))}) return;")
        self.trips //= most
        self.state.clear()
        return [*made, start, Nest(head, body, tail)] if start else [*made, Nest(head, body, tail)]


def _index(two_axes: bool, threads: str) -> Nodes:
    if not two_axes:
        return ["int tid = threadIdx.x, bid = blockIdx.x;", "int i = bid * blockDim.x + tid;"]
    return [
        "int tid = threadIdx.y * blockDim.x + threadIdx.x, bid = blockIdx.y * gridDim.x + blockIdx.x;",
        f"int i = bid * {threads} + tid;",
    ]


def _again(declaration: str) -> str:
    """An assignment to what was declared so."""
    return declaration.removeprefix("int ").removeprefix("unsigned ")


def _merged(one: dict[str, str], other: dict[str, str]) -> dict[str, str]:
    return {name: one.get(name, other.get(name, "")) if _alike(one, other, name) else CLOSED for name in one | other}


def _alike(one: dict[str, str], other: dict[str, str], name: str) -> bool:
    return name not in one or name not in other or one[name] == other[name]
