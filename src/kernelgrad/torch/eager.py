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
from ..runtime.replay import Replay, Replays
from ..runtime.tracing import fill_placeholder
from .calls import Call, Maybe, Tensor
from .launching import in_memory, is_plain_memory, lending, make_launch_of, plain, refuse_recording

if TYPE_CHECKING:
    from .registration import Registered

_PLANS = 256
TENSORS = (torch.Tensor, torch.nn.Parameter)

_included, _excluded = torch._C._dispatch_tls_local_include_set, torch._C._dispatch_tls_local_exclude_set
_function_modes, _profiles = torch._C._len_torch_function_stack, torch._C._autograd._profiler_enabled


def _state() -> tuple[Any, ...]:
    """What says whether something is on; the last is the number of modes over functions."""
    keys = _included().raw_repr(), _excluded().raw_repr()
    return (*keys, forward_ad._current_level, _profiles(), _function_modes())


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


class Ready:
    """A launch of which only addresses and numbers differ from call to call. `sizes`: the bytes of each array."""

    def __init__(self, replays: Replays, launch: Launch, slowly: Callable[[tuple[Any, ...]], None]):
        self._replays, self._launch, self._slowly = replays, launch, slowly
        self._replay: Replay | None = None
        self._sizes: list[int] = []

    def run(self, arrays: Sequence[Maybe], numbers: Sequence[float], whole: Callable[[], tuple[Any, ...]]) -> None:
        """`arrays`: those of `whole()`, which are all arguments; contiguous."""
        replay = self._replay
        if replay is not None:
            addresses, bits = [], 0
            for array in arrays:
                if array is not None:
                    address = array.data_ptr()
                    bits |= address
                    addresses.append(address)
            if not bits & 15 and (replay.inside or self._are_whole(arrays)) and self._go(replay, addresses, numbers):
                return
        args = whole()
        found = self._replays.find(self._launch, args, True)
        if found is not None and self._go(*found):
            if not any(address & 15 for address in found[1]):
                self._replay, self._sizes = found[0], [0 if a is None else a.nbytes for a in arrays]
            return
        self._slowly(args)

    @staticmethod
    def _go(replay: Replay, addresses: Sequence[int], numbers: Sequence[float]) -> bool:
        if not replay.needs_memory:
            return replay.run((), addresses, numbers)
        with lending():
            return replay.run((), addresses, numbers)

    def _are_whole(self, arrays: Sequence[Maybe]) -> bool:
        """Not parts of larger ones."""
        sizes = zip(arrays, self._sizes, strict=True)
        return all([a is None or a.untyped_storage().nbytes() == nbytes for a, nbytes in sizes])  # noqa: C419


class Plan:
    """Of calls with the same shapes. `made`: the outputs' shapes, dtypes, and an array like which they are, by its
    place. `wanted`: the inputs whose gradients are. `saved`: which of the tensors that go in the backward reads, of
    which `kept` are arrays. `call`: all but tensors, for the dispatcher's operators."""

    __slots__ = ("launch", "device", "made", "wanted", "saved", "kept", "call", "integers", "ready", "backwards")

    def __init__(self, launch: Launch | None, device: torch.device, wanted: tuple[str, ...], call: Call):
        self.launch, self.device, self.wanted, self.call = launch, device, wanted, call
        self.integers = tuple(call.integers.values())
        self.made: tuple[tuple[Any, torch.dtype, int | None], ...] = ()
        self.saved: tuple[int, ...] = ()
        self.kept = 0
        self.ready: Ready | None = None
        self.backwards: dict[Any, Backward] = {}


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
        plan.made = tuple(self._made(name, shape, arrays) for name, shape in call.shapes.items())
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
            return self._apply(self, plan, numbers, *tensors)
        return self.value(plan, tensors, numbers)

    def value(self, plan: Plan, tensors: Sequence[Any], numbers: Sequence[Any]) -> Any:
        count = len(self.roles.arrays)
        pool: list[Any] = [
            a if is_plain_memory(a) else self._in_memory(k, a.detach()) for k, a in enumerate(tensors[:count])
        ]
        for k in self._updated:
            pool[k] = tensors[k].detach().clone(memory_format=torch.contiguous_format)
        for shape, dtype, like in plan.made:
            made = torch.empty(shape, dtype=dtype, device=plan.device) if like is None else torch.empty_like(pool[like])
            pool.append(made)
        if plan.ready is not None:
            numbers = [t.item() if type(t) in TENSORS else t for t in numbers]
            self.launcher.before_value(plan.device)
            whole = [*pool, *numbers, *plan.integers]
            arrays = [pool[k] for k in self._pointers]
            plan.ready.run(arrays, numbers, lambda: tuple([whole[k] for k in self._order]))
        else:
            self._fill_outputs([([*pool, *numbers, *plan.integers])[k] for k in self._order])
        results = self._results
        return pool[results[0]] if len(results) == 1 else tuple([pool[k] for k in results])

    def _in_memory(self, place: int, array: Tensor) -> Tensor:
        self.launcher.check_layout(self.roles.arrays[place], array)
        return in_memory(array)

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

    def backward(self, plan: Plan, grads: Sequence[Maybe], saved: Sequence[Any], numbers: Any) -> list[Maybe]:
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


Recipe = Callable[[Sequence[Maybe], Sequence[Any]], Any]


class Backward:
    """The backward of calls with one plan, where gradients of the same results come. What a launch is given is a recipe
    for each argument: functions of the gradients and of what was saved."""

    def __init__(self, eager: Eager, plan: Plan, grads: Sequence[Maybe], numbers: Any, deterministic: bool):
        self._eager, self._plan, roles = eager, plan, eager.roles
        self._place = {name: k for k, name in enumerate(roles.results)}
        self._saved = {roles.arrays[k]: at for at, k in enumerate(plan.saved[: plan.kept])}
        self._tensors = [n for n, t in zip(roles.numbers, numbers, strict=True) if type(t) in TENSORS]
        self._reverse, self._grads = eager.derived.reverse(deterministic), grads
        pointers = [p.name for p in roles.parameters if p.pointer]
        self._recipes = [self._array(name) for name in pointers]
        self._recipes += [self._adjoint(name) for name in eager.derived.listed]
        self._own = len(pointers)
        self._returned = [self._places(name) for name in (*roles.arrays, *self._tensors)]
        self._ready = None
        if plan.launch is not None:
            gradient, launch = self._reverse.gradient, plan.launch
            slowly = partial(_slowly, gradient, launch, eager.derived.options.tape_bytes)
            self._ready = Ready(gradient.replays, launch, slowly)

    def run(self, grads: Sequence[Maybe], saved: Sequence[Any], numbers: Any) -> list[Maybe]:
        arrays = [None if recipe is None else recipe(grads, saved) for recipe in self._recipes]
        if self._ready is not None:
            numbers = [v.item() if type(v) in TENSORS else v for v in numbers]
            self._eager.launcher.before_derivative()
            self._ready.run(arrays, numbers, lambda: self._arguments(arrays, numbers))
        found: list[Maybe] = []
        for place, at in self._returned:
            gradient = None if place is None else arrays[place]
            if gradient is not None and at is not None:
                gradient = gradient.reshape(saved[at].shape).to(saved[at].device, saved[at].dtype)
            found.append(gradient)
        return found

    def _arguments(self, arrays: list[Maybe], numbers: list[float]) -> tuple[Any, ...]:
        roles = self._eager.roles
        of_kernel = iter(arrays[: self._own])
        others = dict(zip((*roles.numbers, *roles.integers), (*numbers, *self._plan.integers), strict=True))
        own = [next(of_kernel) if p.pointer else others[p.name] for p in roles.parameters]
        return (*own, *arrays[self._own :])

    def _places(self, name: str) -> tuple[int | None, int | None]:
        """Where among the arrays an input's adjoint is; for a number, where its tensor is among what was saved."""
        listed = self._eager.derived.listed
        place = self._own + listed.index(name) if name in self._plan.wanted else None
        return place, self._plan.kept + self._tensors.index(name) if name in self._tensors else None

    # ---- recipes

    def _adjoint(self, name: str) -> Recipe | None:
        """Of each parameter: what the gradient starts from, None where nothing is wanted."""
        roles, plan = self._eager.roles, self._plan
        if name in self._place:
            at = self._place[name]
            if self._grads[at] is None:
                return self._zeros(name) if name in roles.updated and name in plan.wanted else None
            if name in roles.pure_outputs:
                return lambda grads, saved: plain(grads[at])
            return lambda grads, saved: _copied(grads[at])
        if name not in plan.wanted:
            return None
        return self._zeros(name) if plan.launch is None else self._empty(name)

    def _array(self, name: str) -> Recipe | None:
        """Of the kernel's own: what its reverse reads; for what runs the kernel again, all of them."""
        roles, joint, at = self._eager.roles, self._reverse.joint, self._saved.get(name)
        if name in roles.outputs:
            return self._output(name) if joint or roles[name].read else None
        if at is None:
            return self._zeros(name) if joint else None
        if joint and name in roles.updated:
            return lambda grads, saved: _copied(saved[at])
        return lambda grads, saved: plain(saved[at])

    def _output(self, name: str) -> Recipe:
        shape, dtype, device = self._described(name)
        fill = self._eager.launcher.fills[name]
        if fill is None:
            return lambda grads, saved: torch.empty(shape, dtype=dtype, device=device)
        return lambda grads, saved: torch.full(shape, fill, dtype=dtype, device=device)

    def _zeros(self, name: str) -> Recipe:
        shape, dtype, device = self._described(name)
        return lambda grads, saved: torch.zeros(shape, dtype=dtype, device=device)

    def _empty(self, name: str) -> Recipe:
        """Like a tensor that is there, where one is: that is quicker."""
        shape, dtype, device = self._described(name)
        at = self._saved.get(name)
        if at is not None:
            return lambda grads, saved: torch.empty_like(saved[at], memory_format=torch.contiguous_format)
        return lambda grads, saved: torch.empty(shape, dtype=dtype, device=device)

    def _described(self, name: str) -> tuple[Any, torch.dtype, torch.device]:
        shape = self._eager.launcher.shape_of(name, self._plan.call)
        return shape, self._eager.launcher.dtypes[name], self._plan.device


def _slowly(gradient: Any, launch: Launch, tape_bytes: int | None, args: tuple[Any, ...]) -> None:
    with torch.no_grad(), lending(tape_bytes):
        gradient._launch_plainly(launch, args)


def _copied(tensor: Maybe) -> Tensor:
    assert tensor is not None
    strided = tensor if tensor.layout is torch.strided else tensor.to_dense()
    return strided.detach().clone(memory_format=torch.contiguous_format)


def _node_of(name: str) -> Callable[..., Any]:
    """What puts a node into the graph, under the operator's name."""

    def forward(ctx: Any, eager: Eager, plan: Plan, numbers: Any, *tensors: Tensor) -> Any:
        found = eager.value(plan, tensors, numbers)
        ctx.save_for_backward(*[tensors[k] for k in plan.saved])
        ctx.set_materialize_grads(False)
        ctx.eager = eager, plan, [_TENSOR if type(n) in TENSORS else n for n in numbers] if numbers else numbers
        if eager.silent:
            ctx.mark_non_differentiable(*[found[k] for k in eager.silent] if isinstance(found, tuple) else [found])
        return found

    def backward(ctx: Any, *grads: Maybe) -> Any:
        eager, plan, numbers = ctx.eager
        saved = ctx.saved_tensors
        if numbers:
            there = iter(saved[plan.kept :])
            numbers = [next(there) if n is _TENSOR else n for n in numbers]
        if torch.is_grad_enabled() or not is_plain() or not _are_plain(grads) or not _are_plain(saved):
            return (None, None, None, *eager.through_dispatcher(plan, grads, saved, numbers))
        return (None, None, None, *eager.backward(plan, grads, saved, numbers))

    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    made: Any = type(name, (torch.autograd.Function,), methods)
    # Past what looks for transformations: there are none.
    return super(torch.autograd.Function, made).apply  # type: ignore[no-any-return]


def _are_plain(tensors: Sequence[Maybe]) -> bool:
    return all([t is None or type(t) in TENSORS for t in tensors])  # noqa: C419 this is quicker


_TENSOR = object()
