"""How far the gradient of `saxpy` goes through the package: what has nothing to do with a kernel is not entered.

Calls are noted from `kg.gradient` on, when the kernel itself is compiled: derivation, text, and a launch on the CPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
FILES, EDGES = 120, 407  # entered, and calls from file to file
LOADED = 175  # modules
WALK = """
import gc, json, os, sys, threading
import numpy as np
import kernelgrad as kg

root = os.path.dirname(kg.__file__)
files, edges = set(), set()

def note(frame, event, _):
    code = frame.f_code
    if event != "call" or not code.co_filename.startswith(root) or code.co_name == "<module>":
        return
    files.add(code.co_filename)
    caller = frame.f_back
    while caller is not None and not caller.f_code.co_filename.startswith(root):
        caller = caller.f_back
    if caller is not None and caller.f_code.co_name != "<module>" and caller.f_code.co_filename != code.co_filename:
        edges.add((caller.f_code.co_filename, code.co_filename))

gc.disable()  # finalizers are called from anywhere
module = kg.compile('''__global__ void saxpy(float a, const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}''')
saxpy = module["saxpy"]
threading.setprofile(note)
sys.setprofile(note)
gradient = kg.gradient(saxpy)
assert "d_x" in gradient.source
x, y, d_x, d_y = (np.ones(64, "f") for _ in range(4))
d_a = np.zeros(1, "f")
gradient[1, 64](2.0, x, y, 64, d_a, d_x, d_y)
sys.setprofile(None)
assert d_a[0] == 64 and (d_x == 3).all() and (d_y == 1).all()
loaded = [name for name in sys.modules if name.startswith("kernelgrad")]
entered = sorted(os.path.relpath(file, root) for file in files)
print(json.dumps({"files": entered, "edges": len(edges), "loaded": len(loaded)}))
"""


def test_saxpy(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "KERNELGRAD_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", WALK], env=environment, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert (len(found["files"]) <= FILES, found["edges"] <= EDGES, found["loaded"] <= LOADED) == (True,) * 3, found
    for folder in ("schedule/coarsen", "schedule/trees", "schedule/exchange", "analysis/block_interpreter/cells"):
        assert not [file for file in found["files"] if file.startswith(folder)]
