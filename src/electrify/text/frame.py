"""A given tokenizer reads a text as pre-training does: [CLS], the text, [SEP]; and the second text
of a pair as a segment of its own."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import UserError, failing_as
from ..progress import say
from ..special import SpecialIds
from .tokenizer_files import read_settings, write_settings

PLAIN = "PreTrainedTokenizerFast"
"""The class that reads tokenizer.json as it is written."""


def is_framed(tokenizer: Any, special: SpecialIds) -> bool:
    """Whether a single text stands between [CLS] and [SEP], and a pair has token types 0 and then
    1. Pairs may have further separators. True for a tokenizer that fails here, which is reported
    when it reads the corpus."""
    with suppress(Exception):
        bare = tokenizer("a", add_special_tokens=False)["input_ids"]
        types = tokenizer("a", "a", return_token_type_ids=True)["token_type_ids"]
        single = tokenizer("a")["input_ids"] == [special.cls, *bare, special.sep]
        return single and set(types) == {0, 1} and types == sorted(types)
    return True


def reframe(tokenizer: Any, special: SpecialIds, *, name: str) -> None:
    """Gives a tokenizer that frames its texts differently, or not at all, BERT's frame, and says
    so."""
    if is_framed(tokenizer, special):
        return
    from tokenizers.processors import ByteLevel, Sequence, TemplateProcessing

    first, last = tokenizer.convert_ids_to_tokens([special.cls, special.sep])
    frame = TemplateProcessing(
        single=[first, "$A:0", last],
        pair=[first, "$A:0", last, "$B:1", f"{last}:1"],
        special_tokens=[(first, special.cls), (last, special.sep)],
    )
    backend = tokenizer.backend_tokenizer
    # RoBERTa's also leaves the space before a word out of its offsets.
    trims = getattr(backend.post_processor, "trim_offsets", False)
    backend.post_processor = Sequence([ByteLevel(trim_offsets=True), frame]) if trims else frame
    say(
        f"the tokenizer {name} does not frame texts as pre-training does ({first}, the text, "
        f"{last}; the second text of a pair as segment 1): its copy in the corpus does"
    )


def must_frame(folder: Path, special: SpecialIds, *, name: str) -> None:
    """Raises UserError if the class that a folder names sets a frame of its own, and the plain
    class, which is then named in its place, does not read the frame either."""
    from transformers import AutoTokenizer

    with failing_as(f"the tokenizer {name} cannot be read back"):
        if is_framed(AutoTokenizer.from_pretrained(folder, trust_remote_code=False), special):
            return
        write_settings(folder, read_settings(folder) | {"tokenizer_class": PLAIN})
        if is_framed(AutoTokenizer.from_pretrained(folder, trust_remote_code=False), special):
            return
    raise UserError(
        f"the tokenizer {name} does not put [CLS] before a text and [SEP] after it, with the "
        "second text of a pair as segment 1; give its tokenizer.json a post-processor that does"
    )
