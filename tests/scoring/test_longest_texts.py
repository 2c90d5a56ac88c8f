"""The longest text that a model scores, of models that count their positions in different ways."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from scored import SHAPE, VOCABULARY

from electrify.errors import UserError
from electrify.scoring.pll import load_scorer

PADDED = {"pad_token_id": 1}
MODELS: dict[str, dict[str, Any]] = {
    "MPNet": PADDED,
    "Data2VecText": PADDED,
    "Roberta": PADDED,
    "Camembert": {"pad_token_id": 0},
    "XLMRobertaXL": PADDED,
    "RobertaPreLayerNorm": PADDED,
    "Xmod": PADDED | {"languages": ["en_XX"], "default_language": "en_XX"},
    "Longformer": PADDED | {"attention_window": 4},
    "Esm": PADDED | {"mask_token_id": 4},
    "Nystromformer": {"num_landmarks": 8, "segment_means_seq_len": 16},
    "IBert": PADDED,
    "Bert": {},
    "ModernBert": {
        "pad_token_id": 0,
        "cls_token_id": 2,
        "sep_token_id": 3,
        "bos_token_id": 2,
        "eos_token_id": 3,
    },
    "DebertaV2": {},
}


def made(folder: Path, tokenizer: Path, kind: str) -> Path:
    shutil.copytree(tokenizer, folder, ignore=shutil.ignore_patterns("*.safetensors", "config*"))
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=len(VOCABULARY), **SHAPE, **MODELS[kind]
    )
    torch.manual_seed(0)
    getattr(transformers, f"{kind}ForMaskedLM")(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", MODELS)
def test_a_text_as_long_as_the_model_reads(models_root: Path, tmp_path: Path, kind: str) -> None:
    """Some count their positions from behind the padding token's id; the last ones do not exist."""
    scorer = load_scorer(str(made(tmp_path / "model", models_root / "bert", kind)))
    longest = scorer.longest
    assert 14 <= longest <= 16
    scorer.scores(["a " * (longest - 2)])
    with pytest.raises(UserError, match=f"reads {longest} tokens and the text has {longest + 1}"):
        scorer.scores(["a " * (longest - 1)])
