"""Operators outside of all transformations: what the dispatcher would come to, without the way through it.

Note [Eager calls]
PyTorch's dispatcher brings a call through every transformation that is on; it takes tens of microseconds where that is
done in Python. Where nothing is on (`is_plain`: no transformation, mode, trace or autocast, as the dispatcher's own
state says) the operator does at once what the dispatcher would have it do: it launches, and where a gradient is wanted
it puts one node into the graph. Its backward launches likewise; if that is to be differentiated again, or runs under a
transformation, it goes through the dispatcher (`formulas`). What a call amounts to is found once for its shapes: a
`Plan`, and a `Backward` for each pattern of gradients that come.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

from ..runtime.config import Launch
from ..runtime.replay import Replays
from ..runtime.tracing import fill_placeholder
from . import prepared
from .backward import Backward
from .calls import Call, Maybe, Tensor
from .launching import TENSORS, lending, make_launch_of, refuse_recording
from .prepared import Ready, fetched

if TYPE_CHECKING:
    from .registration import Registered

_PLANS = 256

_included, _excluded = torch._C._dispatch_tls_local_include_set, torch._C._dispatch_tls_local_exclude_set
_function_modes, _profiles = torch._C._len_torch_function_stack, torch._C._autograd._profiler_enabled


def _state() -> tuple[Any, ...]:
    """What says whether something is on; the last is the number of modes over functions."""
    included, excluded = _included().raw_repr(), _excluded().raw_repr()
    return included, excluded, forward_ad._current_level, _profiles(), _function_modes()


_usual: set[tuple[Any, ...]] = set()  # states in which nothing is on
_known_devices: set[str] = set()


def _learn(device: str) -> None:
    """What the state is in a thread of its own, where nothing is on: outside of and in inference, and while PyTorch
    goes backward through a graph on such a device, which has a say in it."""

    class Probe(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            _usual.add(_state())
            return gradient

    def look() -> None:
        _usual.add(_state())
        with torch.inference_mode():
            _usual.add(_state())
        x = torch.zeros(1, device=device, requires_grad=True)
        with torch.autograd.set_multithreading_enabled(False):  # this thread waits for no other
            Probe.apply(x).backward(torch.zeros(1, device=device))  # type: ignore[no-untyped-call, unused-ignore]

    if device in _known_devices or (device == "cuda" and torch.cuda.is_current_stream_capturing()):
        return
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    _known_devices.add(device)


_learn("cpu")


def is_plain() -> bool:
    """Whether no transformation has a part in what is called now."""
    state = _state()
    return state in _usual or (state[-1] > 0 and (*state[:-1], 0) in _usual and _only_default_device())


def _only_default_device() -> bool:
    modes = torch.overrides._get_current_function_mode_stack()  # type: ignore[no-untyped-call, unused-ignore]
    return all(type(mode) is DeviceContext for mode in modes)


class Plan:
    """Of calls with the same shapes. `made`: the outputs' shapes, dtypes, and an array like which they are, by its
    place. `wanted`: the inputs whose gradients are. `saved`: which of the tensors that go in the backward reads, of
    which `kept` are arrays. `call`: all but tensors, for the dispatcher's operators. `fetched`: whether some of the
    numbers are tensors. `usual`: the backward that was prepared last."""

    __slots__ = (
        "launch",
        "device",
        "made",
        "wanted",
        "saved",
        "saves_all",
        "kept",
        "call",
        "integers",
        "fetched",
        "ready",
        "prepared",
        "backwards",
        "usual",
    )

    def __init__(self, launch: Launch | None, device: torch.device, wanted: tuple[str, ...], call: Call):
        self.launch, self.device, self.wanted, self.call = launch, device, wanted, call
        self.integers = tuple(call.integers.values())
        self.made: tuple[tuple[Any, torch.dtype, int | None], ...] = ()
        self.saved: tuple[int, ...] = ()
        self.saves_all = False
        self.kept = 0
        self.fetched = False
        self.ready: Ready | None = None
        self.prepared: Callable[..., Any] | None = None  # Note [Prepared calls]
        self.backwards: dict[Any, Backward] = {}
        self.usual: Callable[..., Any] | None = None


class Eager:
    """The calls of an operator. `tensors` are those of arrays, then of numbers that are tensors."""

    def __init__(self, registered: Registered):
        self.roles, self.launcher, self.formulas = registered.roles, registered.launcher, registered.formulas
        self.derived = registered.launcher.derived
        roles, kernel = self.roles, registered.kernel
        pool = (*roles.arrays, *roles.outputs, *roles.numbers, *roles.integers)
        position = {name: k for k, name in enumerate(pool)}
        self._order = tuple(position[p.name] for p in roles.parameters)
        self._pointers = tuple(position[p.name] for p in roles.parameters if p.pointer)
        self._updated = tuple(roles.arrays.index(name) for name in roles.updated)
        self._results = tuple(position[name] for name in roles.results)
        self.silent = tuple(k for k, name in enumerate(roles.results) if not roles[name].floating)
        self._plans: dict[Any, Plan] = {}
        self._apply = _node_of(registered.name)
        self._fills = [f for k, p in enumerate(roles.parameters) if (f := self._fill(k, p.name)) is not None]
        self._replays = Replays(kernel.function, 0, self._launch_plainly, False, kernel.is_plain)

    def _fill(self, place: int, name: str) -> tuple[int, float, bytes] | None:
        """What an output holds before the kernel runs, and the bytes of an element, fewer where they repeat."""
        fill = self.launcher.fills.get(name)
        if fill is None:
            return None
        element = bytes(
            torch.full((1,), fill, dtype=self.launcher.dtypes[name], device="cpu").view(torch.uint8).tolist()
        )
        return place, fill, element[:1] if len(set(element)) == 1 else element

    # ---- plans

    def plan(self, named: dict[str, Any], shapes: Sequence[Any], launch: Sequence[Any]) -> tuple[Plan, Any, Any] | None:
        """With the tensors and numbers that it is run with; None for what only the dispatcher knows to do."""
        roles = self.roles
        arrays = [named[name] for name in roles.arrays]
        numbers = [named[name] for name in roles.numbers]
        integers = [named[name] for name in roles.integers]
        tensors = [*arrays, *[n for n in numbers if type(n) in TENSORS]]
        if not all(type(t) in TENSORS for t in arrays) or not all(type(i) in (int, bool) for i in integers):
            return None
        if not all(type(n) in (*TENSORS, float, int) for n in numbers):
            return None
        facts = [(t.shape, t.dtype, t.device, t.requires_grad) for t in tensors]
        given = tuple([type(n) in TENSORS for n in numbers])
        key = (*launch, torch.is_grad_enabled(), *facts, given, *integers, *map(tuple, shapes))
        found = self._plans.get(key)
        if found is None:
            if any(t.layout is not torch.strided or t.device.type not in ("cpu", "cuda") for t in tensors):
                return None
            found = self._make_plan(tensors, numbers, integers, shapes, launch)
            while len(self._plans) >= _PLANS:
                self._plans.pop(next(iter(self._plans)), None)
            self._plans[key] = found
        return found, tensors, numbers

    def _make_plan(self, tensors: list[Any], numbers: list[Any], integers: list[Any], shapes: Any, launch: Any) -> Plan:
        roles = self.roles
        arrays = dict(zip(roles.arrays, tensors, strict=False))
        given = {n: t if type(t) in TENSORS else None for n, t in zip(roles.numbers, numbers, strict=True)}
        every, wanted = {**arrays, **given}, tuple[str, ...]()
        if torch.is_grad_enabled():
            wanted = tuple(n for n in roles.active_inputs if (t := every[n]) is not None and t.requires_grad)
        if wanted:
            _learn(tensors[0].device.type)
        needed = self.derived.needed(wanted) if wanted and roles.active_results else frozenset()
        call = Call(
            dict.fromkeys(roles.arrays),
            {n: list(a.shape) for n, a in arrays.items()},
            dict.fromkeys(roles.numbers),
            {},
            dict(zip(roles.integers, integers, strict=True)),
            {n: list(shape) for n, shape in zip(roles.outputs, shapes, strict=True)},
            list(launch),
        )
        plan = Plan(make_launch_of(tuple(launch), self.launcher.kernel.name), tensors[0].device, wanted, call)
        kept = [k for k, name in enumerate(roles.arrays) if name in needed]
        plan.saved, plan.kept = (*kept, *range(len(roles.arrays), len(tensors))), len(kept)
        plan.saves_all = len(plan.saved) == len(tensors)
        plan.made = tuple(self._made(name, shape, arrays) for name, shape in call.shapes.items())
        plan.fetched = len(tensors) > len(arrays)
        if plan.launch is not None:
            plan.ready = Ready(self._replays, plan.launch, partial(self._slowly, plan.launch))
        return plan

    def _made(self, name: str, shape: Any, arrays: dict[str, Tensor]) -> tuple[Any, torch.dtype, int | None]:
        """An output. To make it like an array is quicker."""
        dtype = self.launcher.dtypes[name]
        alike = [k for k, a in enumerate(arrays.values()) if list(a.shape) == shape and a.dtype == dtype]
        return shape, dtype, alike[0] if alike else None

    # ---- launches

    def run(self, plan: Plan, tensors: Sequence[Any], numbers: Sequence[Any]) -> Any:
        if plan.wanted:
            return self._apply((self, plan, numbers), *tensors)
        return self.value(plan, tensors, numbers)

    def value(self, plan: Plan, tensors: Sequence[Any], numbers: Sequence[Any]) -> Any:
        if plan.fetched and plan.ready is not None:
            numbers = fetched(numbers)
        if plan.prepared is not None:
            found = plan.prepared(tensors, numbers)
            if found is not None:
                return found
        return self._value_slowly(plan, tensors, numbers)

    def _value_slowly(self, plan: Plan, tensors: Sequence[Any], numbers: Sequence[Any]) -> Any:
        pool = self._arrays(plan, tensors)
        whole = [*pool, *numbers, *plan.integers]
        args = tuple([whole[k] for k in self._order])
        if plan.ready is not None:
            self.launcher.before_value(plan.device)
            if plan.ready.run([pool[k] for k in self._pointers], args):
                plan.prepared = self._prepared(plan, plan.ready, len(tensors))
        else:
            self._fill_outputs(args)
        results = self._results
        return pool[results[0]] if len(results) == 1 else tuple([pool[k] for k in results])

    def _arrays(self, plan: Plan, tensors: Sequence[Any]) -> list[Any]:
        """Those that a launch is given: the inputs, or copies of them, then outputs."""
        given = zip(self.roles.arrays, tensors, strict=False)
        pool: list[Any] = [self._in_memory(name, array.detach()) for name, array in given]
        for k in self._updated:
            pool[k] = tensors[k].detach().clone(memory_format=torch.contiguous_format)
        for shape, dtype, like in plan.made:
            made = torch.empty(shape, dtype=dtype, device=plan.device) if like is None else torch.empty_like(pool[like])
            pool.append(made)
        return pool

    def _prepared(self, plan: Plan, ready: Ready, count: int) -> Callable[..., Any]:
        """The same for a launch that is known, Note [Prepared calls]; None from it where it cannot be."""
        lines = prepared.Lines("value(tensors, numbers)")
        pool = lines.unpack("t", count, "tensors")[: len(self.roles.arrays)]
        lines.leave_unless([prepared.plain_memory(lines, t) for k, t in enumerate(pool) if k not in self._updated])
        for k in self._updated:
            pool[k] = f"u{k}"
            lines.add(f"u{k} = {prepared.copied(lines, f't{k}')}")
        for k, (shape, dtype, like) in enumerate(plan.made):
            made = prepared.new(lines, shape, dtype, plan.device, None if like is None else pool[like])
            lines.add(f"m{k} = {made}")
            pool.append(f"m{k}")
        if self.launcher.has_conditions:
            lines.add(f"{lines.name(self.launcher.before_value)}({lines.name(plan.device)})")
        prepared.run(lines, ready, [pool[k] for k in self._pointers], "numbers")
        lines.add(f"return {', '.join(pool[k] for k in self._results)}")
        return lines.made()

    def _in_memory(self, name: str, array: Tensor) -> Maybe:
        self.launcher.check_layout(name, array)
        return self.launcher.plain(name, array)

    def _slowly(self, launch: Launch, args: tuple[Any, ...]) -> None:
        with torch.no_grad(), lending():
            self._launch_plainly(launch, args)

    def _launch_plainly(self, launch: Launch, args: tuple[Any, ...]) -> None:
        """Also on placeholders."""
        self._fill_outputs(args)
        self.launcher.kernel._launch_plainly(launch, args)

    def _fill_outputs(self, args: Sequence[Any]) -> None:
        for k, fill, element in self._fills:
            array = args[k]
            if isinstance(array, torch.Tensor):
                array.fill_(fill)
            elif array.nbytes:
                fill_placeholder(array, element)

    def backward(self, plan: Plan, grads: Sequence[Maybe], saved: Sequence[Any], numbers: Any) -> Sequence[Maybe]:
        """A gradient for each tensor that went in."""
        refuse_recording()
        pattern = (self.launcher.is_deterministic(), *[g is None for g in grads])
        found = plan.backwards.get(pattern)
        if found is None:
            found = plan.backwards.setdefault(pattern, Backward(self, plan, grads, numbers, pattern[0]))
        return found.run(grads, saved, numbers)

    def through_dispatcher(self, plan: Plan, grads: Sequence[Maybe], saved: Sequence[Any], numbers: Any) -> list[Maybe]:
        """The same where it is differentiated again."""
        roles = self.roles
        arrays: dict[str, Maybe] = dict.fromkeys(roles.arrays)
        arrays |= {roles.arrays[k]: tensor for k, tensor in zip(plan.saved[: plan.kept], saved, strict=False)}
        given = {n: t if type(t) in TENSORS else None for n, t in zip(roles.numbers, numbers, strict=True)}
        values = {n: 0.0 if type(t) in TENSORS else float(t) for n, t in zip(roles.numbers, numbers, strict=True)}
        whole = plan.call._replace(arrays=arrays, tensors=given, numbers=values)
        by_name = dict(zip(roles.results, grads, strict=True))
        found = self.formulas.backward(
            [by_name[n] for n in roles.active_results], whole, self.formulas.mask(plan.wanted)
        )
        by_input = dict(zip(roles.active_inputs, found, strict=True))
        return [by_input.get(name) for name in (*roles.arrays, *(n for n, t in given.items() if t is not None))]


def _node_of(name: str) -> Callable[..., Any]:
    """What puts a node into the graph, under the operator's name."""

    def forward(ctx: Any, called: tuple[Eager, Plan, Any], *tensors: Tensor) -> Any:
        eager, plan, numbers = called
        found = eager.value(plan, tensors, numbers)
        ctx.save_for_backward(*(tensors if plan.saves_all else [tensors[k] for k in plan.saved]))
        ctx.set_materialize_grads(False)
        if plan.fetched:
            called = eager, plan, [_TENSOR if type(n) in TENSORS else n for n in numbers]
        ctx.called = called
        if eager.silent:
            ctx.mark_non_differentiable(*[found[k] for k in eager.silent] if isinstance(found, tuple) else [found])
        return found

    def backward(ctx: Any, *grads: Maybe) -> Any:
        eager, plan, numbers = ctx.called
        saved = ctx.saved_tensors
        is_first = not torch.is_grad_enabled() and is_plain()
        if is_first and plan.usual is not None:
            found = plan.usual(grads, saved, numbers)
            if found is not None:
                return found
        if plan.fetched:
            there = iter(saved[plan.kept :])
            numbers = [next(there) if n is _TENSOR else n for n in numbers]
        if is_first and _are_plain(grads) and _are_plain(saved):
            return (None, *eager.backward(plan, grads, saved, numbers))
        return (None, *eager.through_dispatcher(plan, grads, saved, numbers))

    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    made: Any = type(name, (torch.autograd.Function,), methods)
    # Past what looks for transformations: there are none.
    return super(torch.autograd.Function, made).apply  # type: ignore[no-any-return]


def _are_plain(tensors: Sequence[Maybe]) -> bool:
    return all([t is None or type(t) in TENSORS for t in tensors])  # noqa: C419 this is quicker


_TENSOR = object()
