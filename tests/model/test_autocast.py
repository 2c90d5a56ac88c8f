"""Dtypes on a GPU by the rules of CUDA's autocast, with tensors that have no data."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from batches import built, text_batch

CUDA, META = 1, 14  # c10::DeviceType


@contextmanager
def fake_cuda() -> Iterator[None]:
    """CUDA tensors without data. A torch without CUDA has no guard for their device, which indexing
    asks for; that of `meta` tensors also does nothing."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    registry = "_ZN3c104impl26device_guard_impl_registryE"
    guards = (ctypes.c_void_p * (META + 1)).in_dll(library, registry)
    own = guards[CUDA]
    if own is None:
        guards[CUDA] = guards[META]
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            yield
    finally:
        guards[CUDA] = own


@pytest.mark.parametrize("recipe", ["bert-tiny", "bert-modernbert-tiny", "bert-deberta-tiny"])
def test_the_residual_stream_keeps_its_dtype(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA's autocast returns float32 from a norm, the CPU's does not."""
    monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    encoder = built(recipe).kept.encoder
    tokens = text_batch(seed=0, rows=2, row_length=32)
    seen: list[torch.dtype] = []
    for module in (*encoder.blocks, encoder):
        module.register_forward_hook(lambda module, given, states: seen.append(states.dtype))
    with fake_cuda(), torch.autocast("cuda", torch.bfloat16):
        for module in encoder.modules():
            for name, p in module.named_parameters(recurse=False):
                setattr(module, name, nn.Parameter(torch.empty_like(p, device="cuda:0")))
            for name, b in module.named_buffers(recurse=False):
                setattr(module, name, torch.empty_like(b, device="cuda:0"))
        encoder(tokens.to("cuda:0"))
    assert seen == [torch.bfloat16] * (len(encoder.blocks) + 1)
