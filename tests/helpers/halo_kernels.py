"""Random stencils whose blocks fill a tile with a halo in shared memory, and the same without it."""

from __future__ import annotations

import random
from dataclasses import dataclass

AXES = "xyz"
BLOCKS = ((8, 1, 1), (33, 1, 1), (32, 1, 1), (8, 4, 1), (5, 3, 1), (16, 2, 1), (4, 3, 2), (8, 2, 2), (1, 4, 1))
VALUES = {
    "copy": "{}",
    "scaled": "1.5 * {}",
    "function": "exp(0.1 * {})",
    "square": "{0} * {0}",
    "place": "{} * (double)(g0 + 1)",
    "float": "(double)(float){}",
}
INDICES = ("int", "unsigned", "size_t")


@dataclass(frozen=True)
class Halo:
    """`low`, `high`: cells before and behind those of the block, along each axis. `fill`: "strided" loops, one "flat"
    loop, one "cell" a thread, or "ifs" along one axis. `memory`: "nested" arrays, "padded" rows, a "flat" array, or
    "dynamic" shared memory."""

    dims: int
    block: tuple[int, int, int]
    grid: tuple[int, ...]
    n: int
    low: int
    high: int
    boundary: str
    fill: str
    memory: str
    value: str
    index: str
    steps: str
    reading: str
    returns: bool

    @property
    def tile(self) -> tuple[int, ...]:
        more = 0 if self.fill == "cell" else self.low + self.high
        return tuple(extent + more for extent in self.block[: self.dims])

    @property
    def stride(self) -> tuple[int, ...]:
        """How far blocks are apart."""
        less = self.low + self.high if self.fill == "cell" else 0
        return tuple(extent - less for extent in self.block[: self.dims])

    @property
    def rows(self) -> tuple[int, ...]:
        return (self.tile[0] + (self.memory == "padded"), *self.tile[1:])

    @property
    def shared_bytes(self) -> int:
        total = 8
        for extent in self.rows:
            total *= extent
        return total if self.memory == "dynamic" else 0

    # ---- text

    def cell(self, *places: str) -> str:
        """Of the tile, the fastest axis first."""
        if self.memory in ("nested", "padded"):
            return "s" + "".join(f"[{place}]" for place in reversed(places))
        return f"s[{flat(places, tuple(map(str, self.rows)))}]"

    @property
    def declared(self) -> str:
        if self.memory == "dynamic":
            return "extern __shared__ double s[];"
        if self.memory == "flat":
            return f"__shared__ double s[{' * '.join(map(str, self.rows))}];"
        return "__shared__ double s" + "".join(f"[{extent}]" for extent in reversed(self.rows)) + ";"

    @property
    def held(self) -> str:
        """A function: what a cell holds, by its place in x."""
        names = [f"g{axis}" for axis in range(self.dims)]
        params = ", ".join(f"int {name}" for name in names)
        inside = " && ".join(f"{name} >= 0 && {name} < n" for name in names)
        moved = {
            "clamp": "".join(f"{g} = min(max({g}, 0), n - 1); " for g in names),
            "periodic": "".join(f"{g} = ({g} % n + n) % n; " for g in names),
        }.get(self.boundary, "")
        value = VALUES[self.value].format(f"x[{flat(names, ('n',) * self.dims)}]")
        other = {"zero": "0.0", "one": "1.0"}.get(self.boundary)
        result = value if other is None else f"{inside} ? {value} : {other}"
        return f"__device__ double held(const double *x, int n, {params}) {{ {moved}return {result}; }}\n"

    def filled(self) -> str:
        places = [f"j{axis}" for axis in range(self.dims)]
        from_x = ", ".join(
            f"(int)blockIdx.{AXES[a]} * {self.stride[a]} + (int)j{a} - {self.low}" for a in range(self.dims)
        )
        store = f"{self.cell(*places)} = held(x, n, {from_x});"
        steps = [str(self.block[a]) if self.steps == "number" else f"blockDim.{AXES[a]}" for a in range(self.dims)]
        if self.fill == "cell":
            return "".join(f"{self.index} j{a} = threadIdx.{AXES[a]}; " for a in range(self.dims)) + store
        if self.fill == "strided":
            loops = [
                f"for ({self.index} j{a} = threadIdx.{AXES[a]}; j{a} < {self.tile[a]}; j{a} += {steps[a]})"
                for a in reversed(range(self.dims))
            ]
            return " ".join(loops) + f" {{ {store} }}"
        if self.fill == "flat":
            return self.filled_flat()
        left = f"if (t0 < {self.low}) {{ int j0 = t0; {store} }}"
        right = f"if (t0 < {self.high}) {{ int j0 = t0 + {self.block[0] + self.low}; {store} }}"
        return f"{{ int j0 = t0 + {self.low}; {store} }} {left} {right}"

    def filled_flat(self) -> str:
        cells = 1
        for extent in self.rows:
            cells *= extent
        digits, below = [], 1
        for a in range(self.dims):
            above = f"(int)c / {below}" if a else "(int)c"
            digits.append(f"int j{a} = {above}{f' % {self.rows[a]}' if a + 1 < self.dims else ''};")
            below *= self.rows[a]
        number = flat([f"threadIdx.{AXES[a]}" for a in range(3)], tuple(f"blockDim.{axis}" for axis in AXES))
        step = str(self.block[0] * self.block[1] * self.block[2])
        step = step if self.steps == "number" else "blockDim.x * blockDim.y * blockDim.z"
        from_x = ", ".join(f"(int)blockIdx.{AXES[a]} * {self.stride[a]} + j{a} - {self.low}" for a in range(self.dims))
        cell = self.cell(*(f"j{a}" for a in range(self.dims))) if self.memory in ("nested", "padded") else "s[c]"
        loop = f"for ({self.index} c = {number}; c < {cells}; c += {step})"
        return f"{loop} {{ {' '.join(digits)} {cell} = held(x, n, {from_x}); }}"

    def taps(self) -> list[tuple[int, ...]]:
        """Places read, from the first of the halo."""
        reach = self.low + self.high + 1
        middle = (self.low,) * self.dims
        star = [(*middle[:a], k, *middle[a + 1 :]) for a in range(self.dims) for k in range(reach)]
        return list(dict.fromkeys(star))

    def computed(self, read: str) -> str:
        """`read`: what is read at a tap, `{0}`, ... its places."""
        taps = self.taps()
        each = [read.format(*tap) for tap in taps]
        if self.reading == "loop" and self.dims == 1:
            return f"double a = 0; for (int q = 0; q < {len(each)}; ++q) a += (0.5 + q) * sin({read.format('q')});"
        summed = " + ".join(f"{0.1 + k / 8} * {one}" for k, one in enumerate(each))
        return f"double a = {summed}{f' + {each[0]} * {each[-1]}' if self.reading == 'product' else ''};"

    def kernel(self, tiled: bool) -> str:
        own = "".join(f"int t{a} = threadIdx.{AXES[a]}; " for a in range(self.dims))
        less = self.low if self.fill == "cell" else 0
        own += "".join(
            f"int i{a} = (int)blockIdx.{AXES[a]} * {self.stride[a]} + t{a} - {less}; " for a in range(self.dims)
        )
        inside = " && ".join(f"i{a} < n" for a in range(self.dims))
        if self.fill == "cell":
            ends = (f"t{a} >= {self.low} && t{a} < {self.block[a] - self.high}" for a in range(self.dims))
            inside = f"{inside} && {' && '.join(ends)}"
        shift = [f"t{a} - {less}" for a in range(self.dims)]
        cell = self.cell(*(f"{shift[a]} + {{{a}}}" for a in range(self.dims)))
        direct = f"held(x, n, {', '.join(f'i{a} + {{{a}}} - {self.low}' for a in range(self.dims))})"
        out = f"y[{flat([f'i{a}' for a in range(self.dims)], ('n',) * self.dims)}] = a;"
        body = f"{self.computed(cell if tiled else direct)} {out}"
        body = f"if (!({inside})) return; {body}" if self.returns else f"if ({inside}) {{ {body} }}"
        fill = f"{self.declared} {self.filled()} __syncthreads(); " if tiled else ""
        return f"{self.held}__global__ void k(double *y, const double *x, int n) {{ {own}{fill}{body} }}"


def flat(places: list[str] | tuple[str, ...], extents: tuple[str, ...]) -> str:
    """The number of a place, the fastest axis first."""
    number = f"({places[-1]})"
    for place, extent in zip(reversed(places[:-1]), reversed(extents[: len(places) - 1]), strict=True):
        number = f"({number} * {extent} + {place})"
    return number


def halo(seed: int) -> Halo:
    chance = random.Random(seed)
    block = chance.choice(BLOCKS)
    dims = max(axis + 1 for axis in range(3) if block[axis] > 1 or axis == 0)
    fill = chance.choice(
        ("strided", "strided", "flat", "cell", "ifs") if dims == 1 else ("strided", "strided", "flat", "cell")
    )
    low, high = chance.choice(((1, 1), (1, 0), (0, 2), (2, 2), (3, 1)))
    if fill == "cell" and min(block[:dims]) <= low + high:
        fill = "strided"
    if fill == "ifs" and block[0] < max(low, high):
        low = high = 1
    n = chance.randint(1, 70 if dims == 1 else 13 if dims == 2 else 7)
    made = Halo(
        dims,
        block,
        (1,) * dims,
        n,
        low,
        high,
        chance.choice(("zero", "clamp", "periodic", "one")),
        fill,
        chance.choice(("nested", "padded", "flat", "dynamic")),
        chance.choice(tuple(VALUES)),
        chance.choice(INDICES),
        chance.choice(("number", "extent")),
        chance.choice(("sum", "product", "loop")),
        chance.random() < 0.3,
    )
    more = chance.choice((0, 0, 1))
    grid = tuple(-(-n // made.stride[axis]) + more for axis in range(dims))
    return Halo(**{**vars(made), "grid": grid})
