"""What an error says of headers that were not found."""

from __future__ import annotations

import re

_NOT_RUN = {  # by the names of headers
    "mpi": "calls of MPI",
    "pthread|future|condition_variable|semaphore|omp": "threads of the host",
    "cublas|cufft|cusparse|cusolver|cudnn|curand|nccl|cutlass|nvml|nvshmem": "calls of NVIDIA's libraries",
}


def header_hint(missing: list[str]) -> str:
    listed = " and ".join(f"'{header}'" for header in missing[:4]) + (" and others" if len(missing) > 4 else "")
    one = len(missing) == 1
    where = "pass its folder in include_dirs=[...]" if one else "pass their folders in include_dirs=[...]"
    kinds = dict.fromkeys(kind for header in missing for names, kind in _NOT_RUN.items() if re.match(names, header))
    but = f"; {' and '.join(kinds)} cannot be run here even so" if kinds else ""
    return f"the {'header' if one else 'headers'} {listed} {'was' if one else 'were'} not found: {where}{but}"
