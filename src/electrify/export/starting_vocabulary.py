"""The vocabulary of a Hugging Face folder from which a run starts, beside that of its corpus.

Published tables of words are padded to a round number of rows (DeBERTaV3's to 128,100, others to a
multiple of 64 or 128): the rows beyond the last token are left out.
"""

from __future__ import annotations

from pathlib import Path

import torch

from ..errors import UserError
from ..oldfiles.tokenizers import VOCABULARY_FILES, must_be_plain, must_be_readable
from ..progress import say
from ..text.tokenizer import load_tokenizer
from .folders import said
from .places import start_of
from .quiet import quiet

MOST = 1.02
"""The most rows for each token; a table with more has another vocabulary, unless it was padded to
a multiple of one of ROUND."""
ROUND = (8, 16, 32, 64, 128)


def check_vocabulary(start: str, *, tokenizer: Path) -> None:
    """Raises UserError if the tokenizer of `start` gives words other ids than the corpus's
    tokenizer (the folder `tokenizer`). A folder without a tokenizer is accepted, and so is one
    whose tokenizer cannot be loaded, which is reported."""
    from transformers import AutoTokenizer

    if not has_vocabulary(start):
        return  # transformers would invent an empty one
    place, local = start_of(start)
    if local:
        must_be_plain(Path(place))
        must_be_readable(Path(place))
    try:
        with quiet():
            theirs = AutoTokenizer.from_pretrained(
                place, trust_remote_code=False, **local
            ).get_vocab()
    except (OSError, ValueError, KeyError) as e:
        say(
            f"warning: {start}: its tokenizer cannot be loaded ({said(e)}), so its words were not "
            "compared with the corpus's"
        )
        return
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as e:  # Rust code panics, which is not an Exception
        raise UserError(f"{start}: its tokenizer cannot be loaded ({said(e)})") from e
    ours = load_tokenizer(tokenizer).get_vocab()
    odd = sorted(word for word in theirs.keys() | ours.keys() if theirs.get(word) != ours.get(word))
    if odd:
        raise UserError(
            f"{start} knows other words than the corpus ({len(odd)} differ, {odd[0]!r} is "
            f"{theirs.get(odd[0])} there, {ours.get(odd[0])} here); "
            f"prepare the corpus with `--tokenizer {start}`, or start from another folder"
        )


def has_vocabulary(start: str) -> bool:
    """Whether there is a tokenizer that can be compared with the corpus's."""
    place, local = start_of(start)
    return not local or any((Path(place) / name).is_file() for name in VOCABULARY_FILES)


def other_vocabulary(start: str, theirs: int, ours: int) -> str:
    return (
        f"{start} has a vocabulary of {theirs}, the corpus one of {ours}; prepare the corpus with "
        f"`--tokenizer {start}`, or start from another folder"
    )


def may_hold(rows: int, tokens: int) -> bool:
    """Whether a table with this many rows may be that of this many tokens."""
    return tokens <= rows <= MOST * tokens or rows in {-(-tokens // n) * n for n in ROUND}


# The tensors with a row for each word, under our names.
OF_WORDS = ("embeddings.words.weight", "head.bias_V")


def without_padding(
    named: dict[str, torch.Tensor], *, rows: int, tokens: int
) -> dict[str, torch.Tensor]:
    """The tensors, cut to as many rows as there are tokens if they have one for each word."""
    return {
        name: t[:tokens] if len(t) == rows and name.endswith(OF_WORDS) else t
        for name, t in named.items()
    }


def about_padding(start: str, *, what: str, rows: int, tokens: int) -> list[str]:
    """A line if rows are left out."""
    if rows == tokens:
        return []
    left = f"the last {rows - tokens:,} of {rows:,} rows of its vocabulary"
    return [f"{what}: {start}: left out {left}, which no token has"]
