"""Launches of awkward shapes, on a GPU and on the CPU: values, adjoints, and what lies around the arrays.

`python tests/helpers/awkward_launches.py` tells how many there are.
"""

from __future__ import annotations

from itertools import cycle, product

import pytest

from awkward_launches import VARIANTS, Variant, differences, gradient_of, reference, run
from every_plan import forced

cupy = pytest.importorskip("cupy")

# What launches of this size do not get by themselves. Of three variants one gets such a plan: NVRTC's time adds up.
FORCED = ("as on a GPU", "in two on a GPU", "gathered and staged", "in cells of blocks", "exchanged", "a large tape")
PLANS = [plan if turn == 0 else None for plan, turn in product(FORCED, range(3))]


@pytest.mark.parametrize(("variant", "plan"), list(zip(VARIANTS, cycle(PLANS), strict=False)), ids=str)
def test_gpu_gives_what_the_cpu_gives(variant: Variant, plan: str | None) -> None:
    expected = {launch: reference(launch) for launch in variant.launches}
    wrong = []
    for mode, wanted in (("reverse", "as launched"), ("all", "as launched"), *([("reverse", plan)] if plan else [])):
        with forced(wanted):
            gradient = gradient_of(variant.name, variant.real, mode, wanted)
            for launch in variant.launches:
                found = run(launch, gradient, mode, cupy)
                wrong += [f"{wanted}: {line}" for line in differences(launch, mode, found, expected[launch])]
    assert not wrong, "\n".join([f"{len(wrong)} wrong:", *wrong[:10]])
