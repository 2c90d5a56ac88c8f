"""The state of torch in which everything here computes, whatever a program that calls us has set.

A default dtype of float64, for example, would silently give other numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def known_torch_state() -> Iterator[None]:
    """A context (or a decorator) in which new tensors are float32 and on the CPU, gradients are
    recorded, and autocast is off. Afterwards the caller's state is as before."""
    import torch

    before = torch.get_default_dtype()
    with ExitStack() as held:
        held.callback(torch.set_default_dtype, before)
        torch.set_default_dtype(torch.float32)
        held.enter_context(torch.inference_mode(False))
        held.enter_context(torch.enable_grad())
        if torch.get_default_device().type != "cpu":
            # Only then, because such a context makes every call into torch slower.
            held.enter_context(torch.device("cpu"))
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                held.enter_context(torch.autocast(kind, enabled=False))
        yield
