"""Kernels as operators of JAX: `kg.jax.op(kernel, outputs={"y": "x"}, grid=..., block=256)`."""

try:
    import jax as _jax
except ImportError as error:
    raise ImportError("kernelgrad.jax needs JAX: pip install jax") from error

if not hasattr(_jax, "ffi"):
    raise ImportError(f"kernelgrad.jax needs JAX 0.5 or newer, this is {_jax.__version__}")

from .exporting import export
from .operator import Op, op

__all__ = ["Op", "export", "op"]
