import sys
from pathlib import Path

# The random kernels and the emulation are modules of the tests.
_HERE = Path(__file__).parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "emulation")]
