"""What is rewritten in the compiler's graphs for a GPU, here run operator by operator on a CPU."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._inductor.decomposition import select_decomp_table
from torch.fx.experimental.proxy_tensor import make_fx

from electrify.train.rewrites import CHUNK, Rewrites


@pytest.mark.parametrize(("tokens", "summed"), [(2 * CHUNK, 3), (2 * CHUNK + 1, 0)])
def test_bias_gradients(tokens: int, summed: int) -> None:
    """Of what is computed element by element: the gradients of the loss, of queries, keys and
    values side by side, and of gelu. Not of a norm's, and only of whole chunks. The numbers are
    those of before, but for rounding to bfloat16."""
    torch.manual_seed(0)
    up, down, norm = nn.Linear(8, 16), nn.Linear(16, 8), nn.LayerNorm(8)
    qkv, last = nn.Linear(8, 24), nn.Linear(8, 8)
    parameters = [p for part in (up, down, norm, qkv, last) for p in part.parameters()]

    def gradients(x_TD: Tensor) -> tuple[Tensor, ...]:
        with torch.autocast("cpu", torch.bfloat16):
            x_TD = norm(x_TD + down(F.gelu(up(x_TD)))).bfloat16()
            q_TD, k_TD, v_TD = qkv(x_TD).chunk(3, 1)
            logits_TD = last((q_TD @ k_TD.T / tokens) @ v_TD).float()
        return torch.autograd.grad(F.softplus(logits_TD).mean(), parameters)

    x_TD = torch.randn(tokens, 8)
    trace = make_fx(gradients, select_decomp_table(), "fake", _allow_non_fake_inputs=True)
    traced = trace(x_TD)
    before = traced(x_TD)
    Rewrites()(traced.graph)
    traced.recompile()
    own = traced.graph.find_nodes(op="call_function", target=torch.ops.aten.clone.default)
    assert len(own) == summed
    for found, wanted in zip(traced(x_TD), before, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-2, atol=1e-6)


def test_weight_gradients() -> None:
    """A product that leaves the graph in float32 is written so. One that is read in the graph stays
    in bfloat16, for its readers would move more bytes."""

    def products(y_TN: Tensor, x_TD: Tensor) -> tuple[Tensor, ...]:
        return (y_TN.T @ x_TD).float(), (y_TN @ y_TN.T).float() + 1

    shapes = [torch.randn(16, 8).bfloat16(), torch.randn(16, 4).bfloat16()]
    traced = make_fx(products, select_decomp_table(), "fake", _allow_non_fake_inputs=True)(*shapes)
    Rewrites()(traced.graph)
    aten = torch.ops.aten
    (wide,) = traced.graph.find_nodes(op="call_function", target=aten.mm.dtype)
    assert wide.args[2] == torch.float32
    assert [n.op for n in wide.users] == ["output"]
    assert len(traced.graph.find_nodes(op="call_function", target=aten.mm.default)) == 1
