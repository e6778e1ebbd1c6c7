"""A small network whose layers are CUDA kernels of your own, trained in PyTorch under `torch.compile`: bias and GELU,
layer norm, softmax and cross entropy. No backward is written by hand. Beside it the same network of PyTorch's own
layers, which ends at the same loss. On the GPU, if there is one: `python examples/train_in_torch.py`."""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch.nn import functional

import kernelgrad as kg

SOURCE = r"""
__global__ void bias_gelu(float *y, const float *x, const float *bias, int columns) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (column >= columns) return;
    float v = x[row * columns + column] + bias[column];
    y[row * columns + column] = 0.5f * v * (1 + erff(v * 0.70710678f));
}

__device__ float over_warp(float v) {
    for (int distance = 16; distance > 0; distance /= 2) v += __shfl_xor_sync(0xffffffff, v, distance);
    return v;
}

// A warp for each row.
__global__ void layer_norm(float *y, const float *x, const float *gain, const float *shift, int columns) {
    const float *row = x + blockIdx.x * columns;
    float sum = 0, squares = 0;
    for (int c = threadIdx.x; c < columns; c += 32) sum += row[c];
    float mean = over_warp(sum) / columns;
    for (int c = threadIdx.x; c < columns; c += 32) squares += (row[c] - mean) * (row[c] - mean);
    float scale = rsqrtf(over_warp(squares) / columns + 1e-5f);
    for (int c = threadIdx.x; c < columns; c += 32)
        y[blockIdx.x * columns + c] = (row[c] - mean) * scale * gain[c] + shift[c];
}

// A thread for each row: minus the logarithm of the probability of its label.
__global__ void cross_entropy(float *loss, const float *logits, const int *labels, int rows, int classes) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float *z = logits + row * classes;
    float top = z[0], sum = 0;
    for (int k = 1; k < classes; k++) top = fmaxf(top, z[k]);
    for (int k = 0; k < classes; k++) sum += expf(z[k] - top);
    loss[row] = logf(sum) + top - z[labels[row]];
}
"""
_module = kg.compile(SOURCE)


def _columns(x: Any, **_: Any) -> Any:
    return x.shape[1]


bias_gelu = kg.torch.op(
    _module["bias_gelu"],
    outputs={"y": "x"},
    grid=lambda x, **_: ((x.shape[1] + 127) // 128, x.shape[0]),
    block=128,
    sizes={"columns": _columns},
)
layer_norm = kg.torch.op(
    _module["layer_norm"], outputs={"y": "x"}, grid=lambda x, **_: x.shape[0], block=32, sizes={"columns": _columns}
)
cross_entropy = kg.torch.op(
    _module["cross_entropy"],
    outputs={"loss": lambda logits, **_: (logits.shape[0],)},
    grid=lambda rows, **_: (rows + 127) // 128,
    block=128,
    sizes={"rows": lambda logits, **_: logits.shape[0], "classes": lambda logits, **_: logits.shape[1]},
)


class Network(torch.nn.Module):
    """`ours`: with the kernels, else of PyTorch's layers; the weights are the same."""

    def __init__(self, ours: bool, width: int, classes: int):
        super().__init__()
        self.ours = ours
        torch.manual_seed(0)
        self.first = torch.nn.Linear(2, width, bias=False)
        self.last = torch.nn.Linear(width, classes, bias=False)
        self.bias, self.shift = (torch.nn.Parameter(torch.zeros(width)) for _ in range(2))
        self.gain = torch.nn.Parameter(torch.ones(width))

    def forward(self, points: Any, labels: Any) -> Any:
        """The mean loss."""
        if self.ours:
            hidden = layer_norm(bias_gelu(self.first(points), self.bias), self.gain, self.shift)
            return cross_entropy(self.last(hidden), labels).mean()
        hidden = functional.gelu(self.first(points) + self.bias)
        hidden = functional.layer_norm(hidden, hidden.shape[1:], self.gain, self.shift)
        return functional.cross_entropy(self.last(hidden), labels.long())


def spirals(count: int, classes: int) -> tuple[Any, Any]:
    """Points on the arms of a spiral, and their arms."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(count) % classes
    radius = torch.rand(count, generator=generator)
    angle = 3 * radius + labels * (6.2832 / classes) + 0.1 * torch.randn(count, generator=generator)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1) * 2, labels.int()


def train(network: Any, points: Any, labels: Any, steps: int, backend: str) -> list[float]:
    """The losses, step by step."""
    loss = torch.compile(network, backend=backend, fullgraph=True)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss(points, labels)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=600)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--classes", type=int, default=5)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--backend", default="inductor", help="of torch.compile")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    points, labels = (t.to(device) for t in spirals(options.points, options.classes))
    losses = {}
    for name, ours in (("kernels", True), ("PyTorch", False)):
        network = Network(ours, options.width, options.classes).to(device)
        losses[name] = train(network, points, labels, options.steps, options.backend)
        print(f"{name}: loss {losses[name][0]:.4f} at first, {losses[name][-1]:.4f} after {options.steps} steps")
    first, last = (abs(losses["kernels"][k] - losses["PyTorch"][k]) for k in (0, -1))
    assert first < 1e-5 and last < 0.02 * losses["PyTorch"][-1] + 1e-3
    assert losses["kernels"][-1] < 0.5 * losses["kernels"][0]
    print(f"checked   both networks end at the same loss, on {device}")


if __name__ == "__main__":
    main()
