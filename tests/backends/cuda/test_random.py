"""Random structured kernels compute under emulation what the interpreter says."""

import numpy as np
from random_ir import CELLS, Generator, interpret
from run_text import run_emitted

from kernelgrad.backends.cuda import emit
from kernelgrad.ir.verifier import verify

KERNELS = 200
SEEDS = (0, 1, 7, 0xDEADBEEF)


def test_random_kernels() -> None:
    modules = {f"k{seed}": Generator(seed).kernel(f"k{seed}") for seed in range(KERNELS)}
    for module in modules.values():
        verify(module, "generation")
    # One text for all: compiling is what takes time.
    cases = "".join(f"case {k}: {name}(memory, seed); break;\n" for k, name in enumerate(modules))
    choose = f"__global__ void choose(unsigned *memory, unsigned seed, int which) {{ switch (which) {{ {cases} }} }}"
    text = "".join(emit(module, name) for name, module in modules.items()) + choose
    for which, (name, module) in enumerate(modules.items()):
        for seed in SEEDS:
            expected = list(range(10, 10 + CELLS))
            memory = np.array(expected, np.uint32)
            interpret(module, name, expected, seed)
            run_emitted(text, "choose", 1, 1, [memory, np.uint32(seed), np.int32(which)])
            assert memory.tolist() == expected, f"{name} with seed {seed}:\n{emit(module, name)}"
