"""The common parts of all vocabularies trained here: the special tokens, and the normalizer of BPE
and Unigram."""

from __future__ import annotations

from typing import Any

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def normalizer_of(
    lowercase: bool, strip_accents: bool, *, compose: Any, extra: tuple[Any, ...] = ()
) -> Any:
    """The normalizer of a tokenizer: it composes characters first, and then does what was asked
    for."""
    from tokenizers import normalizers

    steps = [compose()]
    if strip_accents:
        steps += [normalizers.NFD(), normalizers.StripAccents()]
    if lowercase:
        steps.append(normalizers.Lowercase())
    return normalizers.Sequence([*steps, *extra])
