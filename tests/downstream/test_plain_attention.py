"""plain_attention against transformers' own attention, and which classes it is for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from transformers import (
    AutoModel,
    BertConfig,
    DebertaV2Config,
    Gemma2Config,
    GPT2Config,
    ModernBertConfig,
    OPTConfig,
    Qwen2Config,
    XLNetConfig,
)
from transformers.models.auto.modeling_auto import MODEL_MAPPING

from electrify.downstream import attention
from electrify.downstream.attention import PLAIN, implementation_for

SHAPE: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
MADE = {
    "bert": BertConfig(**SHAPE),
    "modernbert": ModernBertConfig(
        **SHAPE, pad_token_id=0, cls_token_id=2, sep_token_id=3, local_attention=4
    ),
    "gpt2": GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=4),
    "opt": OPTConfig(
        vocab_size=50,
        hidden_size=32,
        word_embed_proj_dim=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=48,
        pad_token_id=1,
    ),
    "qwen2": Qwen2Config(**SHAPE, num_key_value_heads=2),  # two heads of queries to one of keys
}
WITH_THEIR_OWN = {
    "deberta": DebertaV2Config(**SHAPE, relative_attention=True),
    "xlnet": XLNetConfig(vocab_size=50, d_model=32, n_layer=2, n_head=4),
    "gemma2": Gemma2Config(**SHAPE, num_key_value_heads=2, head_dim=8),
}


def encoders(config: Any) -> tuple[Any, Any]:
    """The same weights with transformers' attention and with ours."""
    found = []
    for implementation in ("eager", PLAIN):
        torch.manual_seed(0)
        found.append(AutoModel.from_config(config, attn_implementation=implementation).eval())
    return found[0], found[1]


@pytest.mark.parametrize("name", MADE)
def test_it_is_the_attention_of_the_library(name: str):
    theirs, ours = encoders(MADE[name])
    ids = torch.randint(4, 50, (3, 12), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(12) < torch.tensor([[12], [7], [1]])).long()
    inputs = {"input_ids": ids, "attention_mask": mask}
    for x, y in ((theirs(**inputs), ours(**inputs)), (theirs(input_ids=ids), ours(input_ids=ids))):
        torch.testing.assert_close(
            x.last_hidden_state[mask.bool()], y.last_hidden_state[mask.bool()], atol=1e-5, rtol=1e-5
        )
    with torch.autocast("cpu", torch.bfloat16):
        near = ours(**inputs).last_hidden_state[mask.bool()].float()
    assert near.isfinite().all()
    exact = theirs(**inputs).last_hidden_state[mask.bool()]
    assert torch.cosine_similarity(near, exact, dim=-1).min() > 0.999


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("bf16", [False, True])
def test_long_rows_keep_no_table_of_scores(
    name: str, bf16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its memory would grow with the square of the length; the fused kernel computes the same."""
    _, ours = encoders(MADE[name])
    ids = torch.randint(4, 50, (3, 12), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(12) < torch.tensor([[12], [7], [1]])).long()
    calls: list[int] = []
    real = F.scaled_dot_product_attention

    def spy(*args: Any, **named: Any) -> torch.Tensor:
        calls.append(1)
        return real(*args, **named)

    def states() -> torch.Tensor:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            return ours(input_ids=ids, attention_mask=mask).last_hidden_state[mask.bool()].float()

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    short = states()
    assert not calls
    monkeypatch.setattr(attention, "LONG_ROW", 12)
    long = states()
    assert len(calls) == SHAPE["num_hidden_layers"]
    torch.testing.assert_close(long, short, atol=0.05 if bf16 else 1e-5, rtol=0.0)


def test_weights_are_dropped_in_training_only():
    _, ours = encoders(
        BertConfig(**SHAPE, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.5)
    )
    ids = torch.arange(4, 16)[None]
    assert torch.equal(ours(ids).last_hidden_state, ours(ids).last_hidden_state)
    ours.train()
    assert not torch.equal(ours(ids).last_hidden_state, ours(ids).last_hidden_state)


@pytest.mark.parametrize("name", [*MADE, *WITH_THEIR_OWN])
def test_which_classes_it_is_for(name: str):
    config = (MADE | WITH_THEIR_OWN)[name]
    found = [
        implementation_for(MODEL_MAPPING[type(config)], config, torch.device(kind))
        for kind in ("cpu", "cuda")
    ]
    assert found == ([PLAIN, "sdpa"] if name in MADE else ["eager", "eager"])
