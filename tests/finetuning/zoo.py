"""Tiny random models and a small WordPiece tokenizer."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DebertaV2Config,
    DebertaV2Model,
    ElectraConfig,
    ElectraForPreTraining,
    ModernBertConfig,
    ModernBertForMaskedLM,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
)
from transformers.utils import logging as hf_logging

from electrify.finetuning.predict import load_predictor
from electrify.finetuning.predict import predict as predicted

WORDS = [
    *("good", "great", "fine", "bad", "awful", "poor", "the", "a", "film", "plot", "was", "is"),
    *("very", "not", "and", "it", "one", "two", "three"),
]
SHAPE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
SHAPE |= {"intermediate_size": 32, "max_position_embeddings": 40}
MODERN = {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2}
MODERN |= {"eos_token_id": 3, "local_attention": 4, "global_attn_every_n_layers": 2}
DEBERTA: dict[str, Any] = {"relative_attention": True, "position_buckets": 8, "type_vocab_size": 0}
DEBERTA |= {"norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": ["p2c", "c2p"]}
DEBERTA |= {"position_biased_input": False}


def save_tokenizer(folder: Path, *, framed: bool = True) -> int:
    """framed: with special tokens around texts."""
    vocabulary = {
        w: i
        for i, w in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##s", "##ly"])
    }
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    if framed:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
        )
    special = ("unk", "pad", "cls", "sep", "mask")
    names: dict[str, Any] = {f"{name}_token": f"[{name.upper()}]" for name in special}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    return len(vocabulary)


def zoo_in(root: Path) -> Path:
    """Folders electra (a discriminator with a projection), bert, roberta and modernbert (masked
    LMs) and deberta (an encoder), all with one tokenizer."""
    hf_logging.disable_progress_bar()
    made = {
        "electra": (ElectraForPreTraining, ElectraConfig, {"embedding_size": 8}),
        "bert": (BertForMaskedLM, BertConfig, {}),
        "roberta": (
            RobertaForMaskedLM,
            RobertaConfig,
            {"pad_token_id": 0, "type_vocab_size": 1, "bos_token_id": 2, "eos_token_id": 3},
        ),
        "modernbert": (ModernBertForMaskedLM, ModernBertConfig, MODERN),
        "deberta": (DebertaV2Model, DebertaV2Config, DEBERTA),
    }
    for name, (model, config, more) in made.items():
        size = save_tokenizer(root / name)
        torch.manual_seed(1)
        model(config(vocab_size=size, **SHAPE, **more)).save_pretrained(root / name)
    return root


def predict(model: Any, texts: Any, *, pairs: Any = None, **options: Any) -> list[dict[str, Any]]:
    """The columns that a fine-tuned model predicts for each text."""
    return predicted(load_predictor(model, **options), texts, pairs=pairs)
