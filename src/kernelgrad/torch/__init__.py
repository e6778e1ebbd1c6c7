"""Kernels as operators of PyTorch: `kg.torch.op(kernel, outputs={"y": "x"}, grid=..., block=256)`."""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError("kernelgrad.torch needs PyTorch: pip install torch") from error

from .operator import Op, op

__all__ = ["Op", "op"]
