"""One of two processes that train a model with an operator: `torch_data_parallel.py rank port`. Prints gradients."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from torch_kernels import elementwise, random


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(5, dtype=torch.float64))
        self.weighted = elementwise("weighted", {"y": "x"})

    def forward(self, x: Any) -> Any:
        return self.weighted(x, self.w, 1.0)


if __name__ == "__main__":
    rank, port = map(int, sys.argv[1:])
    torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(Model())
    model(random(2, 5, grad=False, seed=7)[rank]).sum().backward()
    print(json.dumps(model.module.w.grad.tolist()), flush=True)
    torch.distributed.destroy_process_group()
