"""Folders of tiny random models of transformers' classes, with a small WordPiece tokenizer."""

from pathlib import Path
from typing import Any

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SHAPE: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
SHAPE |= {"intermediate_size": 32, "max_position_embeddings": 16}


def write_models(root: Path, words: list[str], classes: dict[str, str], **sizes: int) -> Path:
    """A folder of each class, named by its path in `root`, whose tokenizer knows these words."""
    import torch
    import transformers as hf
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from transformers.utils import logging

    logging.disable_progress_bar()
    vocabulary = {word: i for i, word in enumerate([*SPECIAL, *words])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    roles = {f"{word[1:-1].lower()}_token": word for word in SPECIAL}
    fast = hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles)
    # Large weights: probabilities far apart.
    size: dict[str, Any] = SHAPE | {"vocab_size": len(vocabulary), "initializer_range": 1.0} | sizes
    electra, bert = hf.ElectraConfig(embedding_size=8, **size), hf.BertConfig(**size)
    torch.manual_seed(0)
    for name, kind in classes.items():
        model = getattr(hf, kind)(bert if kind.startswith("Bert") else electra)
        model.save_pretrained(root / name)
        fast.save_pretrained(root / name)
    return root
