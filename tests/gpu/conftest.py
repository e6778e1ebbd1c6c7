from pathlib import Path

import pytest

from kernelgrad.runtime.devices import cuda_available

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder is for a GPU."""
    skip = pytest.mark.skip(reason="no CUDA device, driver or [cuda] packages on this machine")
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if not cuda_available():
                item.add_marker(skip)
