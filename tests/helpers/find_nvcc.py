"""Where nvcc is: on the path, or in NVIDIA's wheels."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path


def nvcc() -> str | None:
    found = shutil.which("nvcc")
    if found is not None:
        return found
    wheels = Path(sysconfig.get_path("purelib"), "nvidia").glob("*/bin/nvcc")
    return next((str(path) for path in sorted(wheels)), None)


def build(text: str, target: Path, *options: str) -> Path:
    """The file as plain nvcc builds it. `target`: without a suffix."""
    file = target.with_suffix(".cu")
    file.write_text(text)
    compiler = nvcc()
    assert compiler is not None, "nvcc is not installed"
    built = subprocess.run([compiler, *options, "-o", str(target), str(file)], capture_output=True, text=True)
    assert built.returncode == 0, f"nvcc refuses the text:\n{built.stderr[:3000]}\n{text}"
    return target
