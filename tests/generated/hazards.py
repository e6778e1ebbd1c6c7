"""Statements where gradients go wrong: masked infinities, indices on rounding boundaries, values kept in loops."""

from __future__ import annotations

from collections.abc import Callable

from .expressions import INTEGERS, Expressions, Variable
from .program import Nest

Nodes = list["str | Nest"]

SINGULAR = (  # at zero, in value or in slope; the first four go to plus infinity
    "1.0 / ({0} * {0})",
    "rsqrt(fabs({0}))",
    "-log(fabs({0}))",
    "pow(fabs({0}), -0.7)",
    "sqrt({0} * {0})",
    "sqrt(fabs({0}))",
    "pow(fabs({0}), 0.3)",
    "{1} / {0}",
    "atan2({0}, {0})",
    "hypot({0}, {0})",
    "cbrt({0})",
)


class Hazards(Expressions):
    """The part of a generator that has statements with them; `name` and `add` are the whole's."""

    name: Callable[[str], str]
    add: Callable[[Variable], str]

    def masked(self) -> Nodes:
        """A value that is infinite or has an infinite slope at zero, and is replaced there."""
        made, zero, guard = self.pick((self._difference, self._clipped))()
        kind = self.below(len(SINGULAR))
        value = SINGULAR[kind].format(zero, self.real_atom().text)
        if self.chance(40):
            value = f"{self.pick((self.real_atom().text, '0.5'))} * ({value})"
            kind = len(SINGULAR)
        elif self.chance(30):
            value = f"({value}) * ({value})"
        raw, result = self.name("raw"), self.name("v")
        masks: list[Nodes] = [
            [f"double {raw} = {value};", f"if ({guard}) {raw} = 0.4;"],
            [f"double {raw}_ = {value};", f"double {raw} = {guard} ? 0.0 : {raw}_;"],
            [f"double {raw}_ = {value}, {raw} = 0.1;", f"if (!({guard})) {raw} += {raw}_;"],
        ]
        if kind < 4:
            masks.append([f"double {raw} = fmin({value}, 10.0);"])
        made += self.pick(masks)
        self.add(Variable(result, "real"))
        bound = self.pick((f"tanh(0.1 * {raw})", f"{raw} / (1.0 + fabs({raw}))", f"sin({raw} / (1.0 + {raw} * {raw}))"))
        return [*made, f"double {result} = {bound};"]

    def _difference(self) -> tuple[Nodes, str, str]:
        tables = self.visible("table")
        if not tables:
            return self._clipped()
        first, second, zero = self.name("k"), self.name("k"), self.name("z")
        table = tables[self.below(len(tables))].name
        made: Nodes = [f"int {first} = {self.index('n')}, {second} = {self.pick((self.index('n'), first))};"]
        made.append(f"double {zero} = {table}[{first}] - {table}[{second}];")
        return made, zero, f"{first} == {second}"

    def _clipped(self) -> tuple[Nodes, str, str]:
        zero = self.name("z")
        return (
            [f"double {zero} = fmax(0.0, {self.real(1).text});"],
            zero,
            self.pick((f"{zero} == 0.0", f"!({zero} > 0.0)")),
        )

    def boundary(self) -> Nodes:
        """An integer that is the rounded-down position of a node in a grid of such nodes."""
        step, name = self.integer_atom(), self.name("k")
        rows = (
            "(int)floorf((0.01f * (float)({0})) * 100.0f - 1.0f)",
            "(int)floor((0.1 * {0}) * 10.0 - 2.0)",
            "(int)((0.07f * (float)({0})) / 0.07f)",
            "__double2int_rd({1} * 3.0 - 3.0 * {1}) + {0}",
            "((int)floorf((float)({1}) * 100.0f - 1.0f) + {0}) % 3",
            "((int)({1} / 0.01) - {0}) % 3",
            "(__double2int_rn({1} * 50.0) + {0}) % 3",
        )
        text = self.pick(rows).format(step.text, self.real_atom().text)
        self.add(Variable(name, "int", min(INTEGERS, step.bound + 3), negative=True))
        return [f"int {name} = {text};"]
