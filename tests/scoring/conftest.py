"""A tiny random discriminator, its generator and a BERT, with a small WordPiece tokenizer."""

from pathlib import Path

import pytest
import torch
from scored import SHAPE, VOCABULARY
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import (
    BertConfig,
    BertForMaskedLM,
    ElectraConfig,
    ElectraForMaskedLM,
    ElectraForPreTraining,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging as hf_logging


@pytest.fixture(scope="session")
def models_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders run/discriminator, run/generator and bert."""
    root = tmp_path_factory.mktemp("models")
    hf_logging.disable_progress_bar()
    tokenizer = Tokenizer(
        models.WordPiece({w: i for i, w in enumerate(VOCABULARY)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )
    torch.manual_seed(0)
    size = {
        "vocab_size": len(VOCABULARY),
        "initializer_range": 1.0,
        **SHAPE,
    }  # large weights: probabilities far apart
    made = {
        "run/discriminator": ElectraForPreTraining(ElectraConfig(embedding_size=8, **size)),
        "run/generator": ElectraForMaskedLM(ElectraConfig(embedding_size=8, **size)),
        "bert": BertForMaskedLM(BertConfig(**size)),
    }
    for name, model in made.items():
        model.save_pretrained(root / name)
        fast.save_pretrained(root / name)
    return root
