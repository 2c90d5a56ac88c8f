"""A tokenizer that makes plain text of everything: "[MASK]" in a text is six characters, not the
special token."""

from __future__ import annotations

import json
from typing import Any

# Documents have no NUL, so no text holds such a piece.
_NEVER = "\0"


def plain(content: str) -> Any:
    """The tokenizer of the content of a tokenizer.json, whose model gives the same ids except that
    it cannot spell its special tokens; those that stand in a text are spelled by other pieces.

    The library looks for special tokens before its model does, and can be told not to. But most
    models have them in their vocabularies, too, and would find them there.
    """
    from tokenizers import Tokenizer

    whole = json.loads(content)
    model = whole["model"]
    known = model["vocab"]
    names = set(known) if isinstance(known, dict) else {piece for piece, _ in known}
    special = {token["content"] for token in whole["added_tokens"] if token["special"]} & names
    hidden = {name: _NEVER + name for name in special}
    # A list is Unigram's, [piece, score] each.
    model["vocab"] = (
        {hidden.get(piece, piece): i for piece, i in known.items()}
        if isinstance(known, dict)
        else [[hidden.get(piece, piece), score] for piece, score in known]
    )
    if (unknown := model.get("unk_token")) in hidden:
        model["unk_token"] = hidden[unknown]
    if "merges" in model:
        prefix = model.get("continuing_subword_prefix") or ""
        model["merges"] = [m for m in model["merges"] if special.isdisjoint(_touched(m, prefix))]
    whole["added_tokens"] = [t for t in whole["added_tokens"] if t["content"] not in special]
    tokenizer = Tokenizer.from_str(json.dumps(whole))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def _touched(merge: Any, prefix: str) -> tuple[str, str, str]:
    """The two pieces that a merge of BPE joins, and what it makes of them."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right, left + right.removeprefix(prefix)
