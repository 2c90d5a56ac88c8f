"""What a CUDA graph does, on a CPU: the operators of some work are recorded once, and then done
again with the same tensors, as a GPU's kernels are with the same memory."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

T = TypeVar("T")


def place(t: Tensor) -> int:
    return t.untyped_storage()._cdata


class Recorder(TorchDispatchMode):
    """made: memory that the work has taken. constant: of tensors that do not depend on what is
    given, which alone may be asked for a number. before: what was in the memory that it changed."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, list[Any]]] = []
        self.made: set[int] = set()
        self.constant: set[int] = set()
        self.before: dict[int, tuple[Tensor, Tensor]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        read = [place(t) for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        constant = torch.Tag.nondeterministic_seeded not in func.tags and self.constant >= {*read}
        constant |= func is torch.ops.aten.lift_fresh.default  # of torch.tensor(7.0)
        if func is torch.ops.aten._local_scalar_dense.default:
            assert constant, "the work asks for a number"
            return func(*args, **kwargs)
        given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
        for argument in func._schema.arguments:
            for t in tree_leaves(given.get(argument.name)) if argument.is_write else ():
                if place(t) not in self.made:
                    self.before.setdefault(id(t), (t, t.detach().clone()))
        out = func(*args, **kwargs)
        found = [t for t in tree_leaves(out) if isinstance(t, Tensor)]
        places = {place(t) for t in found}
        self.constant = self.constant | places if constant else self.constant - places
        if not func.is_view:
            self.made |= places - {place(t) for t, _ in self.before.values()}
            self.calls.append((func, args, kwargs, found))
        return out


def record(work: Callable[[], T]) -> Callable[[], T]:
    """In place of `Graphs.record`: what the work changes is put back, for a capture does none of
    it, and draws no number."""
    with Recorder() as recorder, torch.random.fork_rng(devices=[]):
        result = work()
    with torch.no_grad():
        for t, was in recorder.before.values():
            t.copy_(was)

    @torch.no_grad()
    def replay() -> T:
        for func, args, kwargs, made in recorder.calls:
            again = [t for t in tree_leaves(func(*args, **kwargs)) if isinstance(t, Tensor)]
            for t, found in zip(made, again, strict=True):
                assert t.shape == found.shape, f"{func} makes other shapes"
                if t is not found:
                    t.copy_(found)
        return result

    return replay
