"""CUDA streams of other packages, as the driver's handles.

A package destroys a stream when its last object goes. Memory that was allocated for it is freed on it, perhaps later:
whoever holds such memory holds `owner_of` the stream, too.
"""

from __future__ import annotations

import sys
from typing import Any
from weakref import WeakValueDictionary

from ..errors import LaunchError

# Where a stream object keeps its handle, besides the `__cuda_stream__` protocol: torch, cupy, numba and others.
_HANDLE_ATTRIBUTES = ("cuda_stream", "ptr", "handle")

_owners: WeakValueDictionary[int, Any] = WeakValueDictionary()  # by handle


def owner_of(handle: int) -> Any:
    """The object with which the stream would be destroyed, where there is one."""
    return _owners.get(handle)


def current_stream(obj: Any) -> int | None:
    """The stream on which the package of this GPU array works now; None for an array that lies on the CPU."""
    if isinstance(obj, tuple):  # what a view owns: the array and its DLPack capsule
        obj = obj[0]
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(obj, torch.Tensor):
        return int(torch.cuda.current_stream(obj.device).cuda_stream) if obj.is_cuda else None
    package = type(obj).__module__.partition(".")[0]
    if package == "cupy":
        return _noted(stream := sys.modules["cupy"].cuda.get_current_stream(), int(stream.ptr))
    interface = getattr(obj, "__cuda_array_interface__", None)
    if interface is not None:
        return int(interface.get("stream") or 0)
    return 0 if _on_gpu(obj) else None


def _noted(stream: Any, handle: int) -> int:
    if handle and hasattr(type(stream), "__weakref__"):
        _owners[handle] = stream
    return handle


def _on_gpu(obj: Any) -> bool:
    device = getattr(obj, "__dlpack_device__", None)
    return device is not None and int(device()[0]) in (2, 13)


def stream_handle(stream: Any) -> int | None:
    """The handle of a stream that the user named; None stays None, "the current one"."""
    if stream is None:
        return None
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        # cuda.core's early releases had a property here, the protocol has a method.
        _version, handle = protocol() if callable(protocol) else protocol
        return _noted(stream, int(handle))
    for name in _HANDLE_ATTRIBUTES:
        handle = getattr(stream, name, None)
        if handle is not None:
            return _noted(stream, int(getattr(handle, "value", handle) or 0))
    raise LaunchError(
        f"stream: wants None, a stream handle (int) or an object with __cuda_stream__; got {type(stream).__name__}"
    )
