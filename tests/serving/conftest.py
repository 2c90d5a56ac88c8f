"""Tiny random models: a discriminator with its generator, a BERT, and models of tasks."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders run/discriminator, run/generator, bert, tuned, tagger and reader."""
    import torch
    import transformers as hf
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from transformers.utils import logging

    root = tmp_path_factory.mktemp("served")
    logging.disable_progress_bar()
    letters = [chr(i) for i in range(33, 127)]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*special, *letters, *(f"##{c}" for c in letters), "the", "chef", "ate", "meal"]
    vocabulary = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    roles = {f"{word[1:-1].lower()}_token": word for word in special}
    fast = hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles)
    size = {
        "vocab_size": len(words),
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 64,
        "initializer_range": 1.0,  # probabilities far apart
    }
    electra = hf.ElectraConfig(embedding_size=8, **size)
    torch.manual_seed(0)
    made = {
        "run/discriminator": hf.ElectraForPreTraining(electra),
        "run/generator": hf.ElectraForMaskedLM(electra),
        "bert": hf.BertForMaskedLM(hf.BertConfig(**size)),
        "tuned": hf.ElectraForSequenceClassification(electra),
        "tagger": hf.ElectraForTokenClassification(electra),
        "reader": hf.ElectraForQuestionAnswering(electra),
    }
    for name, model in made.items():
        model.save_pretrained(root / name)
        fast.save_pretrained(root / name)
    return root
