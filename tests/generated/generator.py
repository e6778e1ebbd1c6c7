"""Random kernels: valid, free of races, and of bounded values; 5 to 60 statements of everything a thread can do alone.

One grammar, two sources of choices: `generate(choices)` is behind the hypothesis strategy and behind the long mode.
Each kernel uses a random part of the grammar's features, which finds more than using all of them each time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from hypothesis import strategies as st

from .expressions import BOUNDED, INTEGERS, SUMS, Choices, Real, Variable
from .hazards import Hazards
from .program import Nest, Program

Nodes = list["str | Nest"]

FEATURES = tuple(
    "for while do break continue return switch ternary short_circuit kinks casts int_of_real arrays pointers records"
    " functions atomics scratch narrow swap sums masked boundary bool_index stored".split()
)

PAIR = ("2 * i", "2 * i + 1", "2 * i + {}")
APART = ("i", "i + n", "i + n * {}")
BUFFERS = ("y", "t", "s", "q", "x", "w", "ps", "a", "b", "p")  # what may be listed
OUTPUTS = ("y", "t", "s", "q")


class FromRandom:
    def __init__(self, seed: int):
        self._random = random.Random(seed)

    def below(self, n: int) -> int:
        return self._random.randrange(n)


class FromHypothesis:
    def __init__(self, draw: st.DrawFn):
        self._draw = draw

    def below(self, n: int) -> int:
        return self._draw(st.integers(0, n - 1))


@st.composite
def programs(draw: st.DrawFn) -> Program:
    return generate(FromHypothesis(draw))


def random_program(seed: int) -> Program:
    return generate(FromRandom(seed))


def generate(choices: Choices) -> Program:
    features = frozenset(f for f in FEATURES if choices.below(100) < 65) | some_numbers(choices)
    narrow = "float" if "narrow" in features and choices.below(3) == 0 else "double"
    return Generator(choices, narrow, features).program()


def some_numbers(choices: Choices) -> frozenset[str]:
    """Of a part of the kernels: equal ones, at which there are ties, and nodes of a grid, which rounding may move."""
    kind = choices.below(100)
    return frozenset({"equal"} if kind >= 70 else {"nodes", "boundary"} if kind >= 60 else ())


class Generator(Hazards):
    def __init__(self, choices: Choices, narrow: str, features: frozenset[str]):
        super().__init__(choices, narrow, features)
        self.names = 0
        self.trips = 1  # how often the current statement may run, in its function
        self.in_loop = self.in_switch = False
        self.functions: list[tuple[str, tuple[str, ...]]] = []  # name, kinds of parameters
        self.returns = ""  # what a return statement gives: a double in a function
        self.budget = 0

    def program(self) -> Program:
        functions = [self.function() for _ in range(self.below(4))] if "functions" in self.features else []
        two_axes = self.chance(25)
        kernel = self.kernel(two_axes)
        grids = (((2, 1), (4, 2)), ((1, 2), (3, 4)), ((2, 2), (2, 3))) if two_axes else _ONE_AXIS
        grid, block = self.pick(grids)
        return Program(
            functions, kernel, self.narrow, self.list_parameters(), grid, block, 6 + self.below(7), self.below(5),
            self.below(1000), self.features,
        )  # fmt: skip

    def list_parameters(self) -> tuple[str, ...]:
        outputs = ["y", *(n for n in OUTPUTS if n not in ("y", "t") and self.chance(80))]
        if self.chance(50):
            outputs.append("t")
        return (*outputs, *(n for n in BUFFERS[4:] if self.chance(75)))

    def name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    # ---- functions

    def kernel(self, two_axes: bool) -> Nest:
        const, restrict = self.pick(("const ", "")), self.pick(("", " __restrict__"))
        layout = self.pick((PAIR, APART))
        sums = SUMS if "sums" in self.features and self.chance(50) else BOUNDED
        scope = [
            Variable("y", "slots", sums, elements=layout, readable="stored" not in self.features),
            Variable("q", "record_slots", elements=("i",)),
            Variable("x", "table", writable=False),
            Variable("w", "table", writable=False),
            Variable("ps", "record_table", writable=False),
            Variable("idx", "int_table", writable=False),
            Variable("c", "int_slots", elements=("i",)),
            Variable("a", "real"),
            Variable("b", "real"),
            Variable("p", "record"),
            *(Variable(n, "int", b, writable=False) for n, b in (("n", 12), ("m", 4), ("i", 12))),
        ]
        if "scratch" in self.features:
            scope.append(Variable("t", "slots", elements=self.pick((PAIR, APART))))
        self.scopes, self.returns = [scope], ""
        self.budget = 5 + self.below(self.pick((4, 8, 16, 30, 56)))
        body: Nodes = list(_INDEX[two_axes])
        body += self.body(30)
        body.append(f"y[{layout[0]}] {'+=' if sums == SUMS else '='} {self.limited(self.real(), BOUNDED).text};")
        return Nest(self.head(const, restrict), body)

    def head(self, const: str, restrict: str) -> str:
        params = (
            f"double *{restrict} y, double *{restrict} t, double *s, P *q, {const}double *{restrict} x,"
            f" {const}double *w, const P *ps, const int *idx, int *c, double a, {self.narrow} b, P p, int n, int m"
        )
        return f'extern "C" __global__ void k({params}) {{'

    def function(self) -> Nest:
        """A device function of values, references and pointers that returns a bounded double."""
        kinds = tuple(
            self.pick(("real", "real", "ref", "array", "table", "record", "int")) for _ in range(1 + self.below(4))
        )
        scope = [Variable("n", "int", 12, writable=False)]
        params = []
        for kind in kinds:
            name = self.name("v")
            params.append(_PARAMETERS[kind].format(name))
            scope.append(_as_variable(name, kind))
        self.scopes, self.returns, self.trips = [scope], "double", 8
        self.budget = 1 + self.below(8)
        body = self.body(10)
        body.append(f"return {self.limited(self.real(), BOUNDED).text};")
        name = self.name("f")
        self.functions.append((name, kinds))
        self.returns, self.trips = "", 1
        return Nest(f"__device__ double {name}({', '.join([*params, 'int n'])}) {{", body)

    # ---- statements

    def body(self, most: int) -> Nodes:
        found: Nodes = []
        for _ in range(most):
            if self.budget <= 0:
                break
            found += self.statement()
        return found

    def nested(self, most: int = 4, extra: tuple[Variable, ...] = ()) -> Nodes:
        self.scopes.append([replace(v, level=len(self.scopes)) for v in extra])
        found = self.body(1 + self.below(most)) or self.assign()
        self.scopes.pop()
        return found

    def statement(self) -> Nodes:
        self.budget -= 1
        deep = len(self.scopes) > 4
        options: list[Callable[[], Nodes]] = [self.assign] * 5 + [self.declare, self.declare, self.assign_int]
        for feature, weight, make in self._kinds(deep):
            if feature is None or feature in self.features:
                options += [make] * weight
        return self.pick(options)()

    def _kinds(self, deep: bool) -> list[tuple[str | None, int, Callable[[], Nodes]]]:
        kinds: list[tuple[str | None, int, Callable[[], Nodes]]] = [
            ("arrays", 2, self.declare_array),
            ("records", 1, self.declare_record),
            ("records", 1, self.copy_record),
            ("pointers", 1, self.declare_pointer),
            ("pointers", 1, self.move_pointer),
            ("sums", 1, self.declare_sum),
            ("masked", 2, self.masked),
            ("boundary", 1, self.boundary),
            ("functions", 3, self.call),
        ]
        if not self.returns:
            kinds.append(("atomics", 1, self.atomic))
        if self.in_loop:
            kinds += [("break", 1, self.break_), ("continue", 1, self.continue_)]
        if len(self.scopes) > 1 or self.returns:
            kinds.append(("return", 1, self.return_))
        if not deep:
            kinds += [(None, 3, self.if_), ("switch", 1, self.switch)]
            if self.trips <= 40:
                kinds += [("for", 4, self.for_), ("while", 2, self.while_), ("do", 1, self.do), ("swap", 1, self.swap)]
        return kinds

    def add(self, variable: Variable) -> str:
        self.scopes[-1].append(replace(variable, level=len(self.scopes)))
        return variable.name

    # ---- assignments

    def bounded(self, bound: float = BOUNDED) -> str:
        return self.limited(self.real(self.pick((1, 1, 2, 2, 3))), bound).text

    def places(self) -> list[Variable]:
        return [
            v
            for v in self.visible("real", "array", "pointer", "record", "records", "slots", "record_slots")
            if v.writable
        ]

    def read_places(self) -> list[Variable]:
        """Bounded places that may be read as well as written."""
        return [v for v in self.places() if v.bound == BOUNDED and v.readable]

    def assign(self) -> Nodes:
        if not self.places():
            return self.declare()
        variable = self.pick(self.places())
        place = self.place_in(variable).text
        if variable.bound == SUMS:
            return [f"{place} {self.pick(('+=', '-='))} {self.bounded()};"]
        kind = self.below(6) if variable.readable else 5
        if kind == 0:
            return [f"{place} *= 0.9 + 0.1 * sin({self.real(2).text});"]
        if kind == 1:
            value = Real(f"({place} * {self.bounded()})", 64)
            return [f"{place} = {self.limited(value, BOUNDED).text};"]
        if kind == 2:
            return [f"{place} = 0.5 * {place} + {self.bounded(4)};"]
        return [f"{place} = {self.bounded()};"]

    def assign_int(self) -> Nodes:
        value = self.integer()
        text = value.text if value.bound <= INTEGERS else f"{value.text} % 13"
        own = [v for v in self.visible("int") if v.writable]
        slots = self.visible("int_slots")
        if slots and self.chance(20):
            return [f"c[i] = {text};"]
        if own and self.chance(50):
            return [f"{self.pick(own).name} = {text};"]
        name = self.name("k")
        self.add(Variable(name, "int", INTEGERS, negative=True))
        return [f"int {name} = {text};"]

    def declare_named(self) -> str:
        return self.add(Variable(self.name("v"), "real"))

    def declare(self) -> Nodes:
        type = self.narrow if self.chance(20) else "double"
        text = f"{type} {{}} = {self.bounded()};"
        return [text.format(self.declare_named())]

    def declare_sum(self) -> Nodes:
        return [f"double {self.add(Variable(self.name('sum'), 'real', SUMS))} = 0;"]

    def declare_array(self) -> Nodes:
        size = self.pick((3, 4, 8))
        name = self.name("arr")
        if self.chance(50):
            values = ", ".join(self.bounded() for _ in range(1 + self.below(size)))
            made: Nodes = [f"double {name}[{size}] = {{{values}}};"]
        else:
            self.scopes.append([Variable("j", "int", 8, writable=False)])
            value = self.bounded()
            self.scopes.pop()
            made = [f"double {name}[{size}];", f"for (int j = 0; j < {size}; ++j) {name}[j] = {value};"]
        self.add(Variable(name, "array", size=size))
        return made

    def declare_record(self) -> Nodes:
        name = self.name("r")
        if self.chance(30):
            first, second = self.some_record(), self.some_record()
            self.add(Variable(name, "records", size=2))
            return [f"P {name}[2] = {{{first}, {second}}};"]
        value = self.some_record()
        self.add(Variable(name, "record"))
        return [f"P {name} = {value};"]

    def some_record(self) -> str:
        if self.chance(50):
            return f"P{{{self.bounded()}, {self.integer(1).text} % 13, ({self.narrow}){self.bounded()}}}"
        found = self.visible("record", "records", "record_slots", "record_table")
        return self.record(self.pick(found)) if found else "P{0.5, 1, 2}"

    def copy_record(self) -> Nodes:
        targets = self.visible("record", "records", "record_slots")
        if not targets:
            return self.declare_record()
        return [f"{self.record(self.pick(targets))} = {self.some_record()};"]

    def address(self, level: int) -> str:
        """The address of a bounded real that lives at least as long as a scope at that level."""
        found = [v for v in self.read_places() if v.level <= level and v.name not in ("b", "p", "q")]
        found = [v for v in found if v.kind in ("array", "slots", "pointer")] or [v for v in found if v.kind == "real"]
        found = [v for v in found if not v.name.startswith("v") or self.narrow == "double"]
        if not found:
            own = self.scopes[0][0]
            return f"(y + {own.elements[0]})" if not self.returns and own.readable else ""
        variable = self.pick(found)
        if variable.kind == "pointer":
            return variable.name
        return f"&{self.place_in(variable).text}"

    def declare_pointer(self) -> Nodes:
        address = self.address(len(self.scopes))
        if not address or (self.scopes[0][0].bound == SUMS and "(y" in address):
            return self.declare()
        return [f"double *{self.add(Variable(self.name('ptr'), 'pointer'))} = {address};"]

    def move_pointer(self) -> Nodes:
        pointers = [v for v in self.visible("pointer") if v.writable]
        if not pointers:
            return self.declare_pointer()
        target = self.pick(pointers)
        address = self.address(target.level)
        if not address or (self.scopes[0][0].bound == SUMS and "(y" in address):
            return self.assign()
        return [f"if ({self.truth()}) {target.name} = {address};"]

    def atomic(self) -> Nodes:
        return [f"atomicAdd(&s[{self.index('3')}], {self.bounded()});"]

    def call(self) -> Nodes:
        if not self.functions:
            return self.assign()
        name, kinds = self.pick(self.functions)
        args = [self.argument(kind) for kind in kinds]
        if None in args:
            return self.assign()
        call = f"{name}({', '.join([*map(str, args), 'n'])})"
        if self.chance(25):
            return [f"{call};"]
        if self.chance(50):
            return [f"double {self.declare_named()} = {call};"]
        reals = [v for v in self.visible("real") if v.writable and v.bound == BOUNDED]
        return [f"{self.pick(reals).name} = {call};"] if reals else [f"{call};"]

    def argument(self, kind: str) -> str | None:
        match kind:
            case "real":
                return self.bounded()
            case "int":
                return f"{self.integer(1).text} % 13"
            case "record":
                return self.some_record()
            case "ref":
                reals = [v for v in self.read_places() if v.kind in ("real", "array", "slots")]
                reals = [v for v in reals if not (v.kind == "real" and self.narrow == "float")]
                return self.place_in(self.pick(reals)).text if reals else None
            case "array":
                arrays = self.visible("array")
                if not arrays:
                    return None
                chosen = self.pick(arrays)
                shift = f" + {self.index(str(chosen.size - 1))}" if chosen.size > 2 and self.chance(40) else ""
                return chosen.name + shift
            case _:
                tables = self.visible("table")
                return self.pick(tables).name if tables else None

    # ---- control

    def if_(self) -> Nodes:
        condition = self.truth()
        made: Nodes = [Nest(f"if ({condition}) {{", self.nested())]
        if self.chance(20):
            made.append(Nest(f"else if ({self.truth()}) {{", self.nested()))
        if self.chance(50):
            made.append(Nest("else {", self.nested()))
        # Kept together, so that taking the program apart does not part an else from its if.
        return made if len(made) == 1 else [Nest("{", made)]

    def loop(self, head: str, most: int, extra: tuple[Variable, ...], tail: str = "}") -> Nest:
        outer, self.in_loop, self.trips = (self.in_loop, self.in_switch, self.trips), True, self.trips * max(1, most)
        self.in_switch = False
        body = self.nested(5, extra)
        self.in_loop, self.in_switch, self.trips = outer
        return Nest(head, body, tail)

    def for_(self) -> Nodes:
        j = self.name("j")
        counters = [v for v in self.visible("int") if v.name.startswith("j")]
        runtime = "n / 3" if self.returns else "m"
        bounds: list[tuple[str, int]] = [
            (str(self.below(6)), 5),
            (runtime, 4),
            (self.index("4"), 3),
            (f"{runtime} + 1", 5),
        ]
        if counters:
            bounds += [(self.pick(counters).name, 5)] * 2
        bound, most = self.pick(bounds)
        counter = Variable(j, "int", 8, writable=False)
        heads = (
            f"for (int {j} = 0; {j} < {bound}; ++{j}) {{",
            f"for (int {j} = {bound}; {j} > 0; --{j}) {{",
            f"for (int {j} = 0; {j} <= {bound}; {j} += 2) {{",
            f"for (int {j} = {bound} - 1; {j} >= 0; {j} -= 1) {{",
        )
        return [self.loop(self.pick(heads), most, (counter,))]

    def while_(self) -> Nodes:
        j = self.name("j")
        head = f"while ({j}++ < {1 + self.below(5)} && {self.truth()}) {{"
        return [f"int {j} = 0;", self.loop(head, 5, (Variable(j, "int", 8, writable=False),))]

    def do(self) -> Nodes:
        j = self.name("j")
        tail = f"}} while (++{j} < {1 + self.below(4)} && {self.truth()});"
        return [f"int {j} = 0;", self.loop("do {", 5, (Variable(j, "int", 8, writable=False),), tail)]

    def break_(self) -> Nodes:
        return [f"if ({self.truth()}) {'continue' if self.in_switch else 'break'};"]

    def continue_(self) -> Nodes:
        return [f"if ({self.truth()}) continue;"]

    def return_(self) -> Nodes:
        value = f" {self.bounded()}" if self.returns else ""
        return [f"if ({self.truth()}) return{value};"]

    def switch(self) -> Nodes:
        size = 2 + self.below(3)
        selector = self.within(self.integer(), str(size))
        outer, self.in_switch = self.in_switch, True
        cases: Nodes = []
        for k in range(size):
            label = f"case {k}" if k < size - 1 or self.chance(50) else "default"
            cases.append(Nest(f"{label}: {{", self.nested(3), "}" if self.chance(35) else "} break;"))
        self.in_switch = outer
        return [Nest(f"switch ({selector}) {{", cases)]

    def swap(self) -> Nodes:
        """Two places of which each in turn is made of the other."""
        level = len(self.scopes)
        places = [v for v in self.visible("array", "slots") if v.bound == BOUNDED and v.readable]
        if not places:
            return self.declare_array()
        first, second = (self.place_in(self.pick(places)).text for _ in range(2))
        names = self.name("from"), self.name("to")
        made: Nodes = [f"double *{names[0]} = &{first}, *{names[1]} = &{second};"]
        for name in names:
            self.scopes[-1].append(Variable(name, "pointer", level=level))
        j = self.name("j")
        loop = self.loop(f"for (int {j} = 0; {j} < {self.pick(('3', 'n / 3', '4'))}; ++{j}) {{", 5, ())
        other = self.name("other")
        exchange = f"double *{other} = {names[0]}; {names[0]} = {names[1]}; {names[1]} = {other};"
        loop.body += [f"*{names[1]} = {self.bounded()};", exchange]
        return [*made, loop]


_ONE_AXIS = (((1, 1), (16, 1)), ((3, 1), (5, 1)), ((2, 1), (8, 1)))

_INDEX = {
    False: ("int i = blockIdx.x * blockDim.x + threadIdx.x;", "if (i >= n) return;"),
    True: (
        "int row = blockIdx.y * blockDim.y + threadIdx.y;",
        "int i = row * (gridDim.x * blockDim.x) + blockIdx.x * blockDim.x + threadIdx.x;",
        "if (i >= n) return;",
    ),
}

_PARAMETERS = {
    "real": "double {}",
    "ref": "double &{}",
    "array": "double *{}",
    "table": "const double *{}",
    "record": "P {}",
    "int": "int {}",
}


def _as_variable(name: str, kind: str) -> Variable:
    match kind:
        case "real" | "ref":
            return Variable(name, "real")
        case "array":
            return Variable(name, "array", size=2)
        case "int":
            return Variable(name, "int", INTEGERS, negative=True)
        case "table":
            return Variable(name, "table", writable=False)
        case _:
            return Variable(name, kind)
