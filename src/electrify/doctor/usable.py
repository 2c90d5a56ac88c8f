"""Whether the other verbs would accept an undamaged model: what `detect` and `finetune` would
refuse, and what would be misread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..export.folders import load_config, load_tokenizer
from ..oldfiles.models import COUNTED, FLOATS
from ..oldfiles.reading import FileError
from ..oldfiles.tokenizers import TOKENIZER_FILES
from ..text.tokenizer import TOKENIZER_FILE
from .files import is_regular, named
from .findings import Finding, as_sentence, error, warning
from .tokenizers import load, options_of
from .weights import Header

# In lower case and without accents, because case and accents have findings of their own.
PROBE = "the tokens of a text, as they stand in it"
CONFIG_ADVICE = "No verb takes it like that: restore config.json from where the model came from."
TOKENIZER_ADVICE = (
    'Set "tokenizer_class" in tokenizer_config.json to the class that it was saved from; '
    '"PreTrainedTokenizerFast" reads any tokenizer.json.'
)


def kind_findings(config: dict[str, Any]) -> Iterator[Finding]:
    """A config.json that would misinterpret an encoder's weights."""
    if config.get("is_decoder"):
        fact = (
            "config.json says is_decoder: every token would see only those before it, so "
            "`detect` and `evaluate` refuse the model, and `finetune` trains it like that"
        )
        yield error(
            "decoder",
            fact,
            (
                'Set "is_decoder": false if it was trained as an encoder; otherwise only '
                "`finetune` can use it."
            ),
        )
    quantized = config.get("quantization_config")
    if quantized is not None:
        method = quantized.get("quant_method") if isinstance(quantized, dict) else None
        fact = (
            "config.json says that the weights are quantised "
            f"({str(method or 'no method is named')[:40]}), which no verb reads"
        )
        yield error(
            "quantized",
            fact,
            (
                "Load it with the library that made it, dequantize it, and save it in float32 or "
                "bfloat16."
            ),
        )


def type_findings(files: dict[Path, Header]) -> Iterator[Finding]:
    """Tensors of dtypes that weights never have: read as plain numbers, they would silently give
    nonsense."""
    found = [
        (name, kind)
        for header in files.values()
        for name, (_, kind) in header.items()
        if kind not in FLOATS and not COUNTED.search(name)
    ]
    if found:
        shown = named(f"{name} ({kind})" for name, kind in found)
        fact = f"{len(found):,} tensors are of types that no training leaves: {shown}"
        advice = (
            "They are codes of a quantised model, or were damaged by a conversion: save the "
            "weights in float32 or bfloat16."
        )
        yield error("dtype", fact, advice)


def loading_findings(folder: Path, config: dict[str, Any], *, tokenizer: bool) -> Iterator[Finding]:
    """The result of the check that every other verb makes before loading. No code of the folder is
    run. tokenizer: whether the folder has one."""
    path = str(folder)
    refused = refusal(lambda: load_config(path))
    if refused and refusal(lambda: load_config(path, causal=True)) is None:
        yield warning(
            "decoder",
            sentence(refused, path),
            "`finetune` can train it; `detect` and `evaluate` need an encoder.",
        )
    elif refused:
        yield cannot_load(refused, path, CONFIG_ADVICE)
    elif tokenizer:
        loaded: list[Any] = []
        refused = refusal(
            lambda: loaded.append(load_tokenizer(path, vocab_size=config.get("vocab_size") or 0)),
        )
        if refused:
            yield cannot_load(refused, path, TOKENIZER_ADVICE)
        elif is_regular(folder / TOKENIZER_FILE):
            yield from same_ids(folder, loaded[0])


def cannot_load(refused: UserError, path: str, advice: str) -> Finding:
    """advice: what to do if the refusal itself does not say."""
    if isinstance(refused, FileError) and refused.advice:
        return error("cannot-load", refused.fact, as_sentence(refused.advice))
    said = sentence(refused, path)
    odd = [name for name in TOKENIZER_FILES if f"{path}/{name}" in str(refused)]
    if odd and advice == CONFIG_ADVICE:
        advice = f"No verb takes it like that: restore {odd[0]} from where it came from."
    return error("cannot-load", said, advice)


def same_ids(folder: Path, tokenizer: Any) -> Iterator[Finding]:
    """Whether the class that the folder names reads tokenizer.json as it is written: some use only
    the vocabulary, and split words by rules of their own."""
    written = load(folder / TOKENIZER_FILE)
    # What is set in tokenizer_config.json has findings of its own.
    told = options_of(folder).keys() & {"do_lower_case", "strip_accents"}
    probes = (PROBE,) if told else (PROBE, PROBE.title())
    if any(
        tokenizer(text, add_special_tokens=False)["input_ids"]
        != written.encode(text, add_special_tokens=False).ids
        for text in probes
    ):
        fact = (
            f"transformers reads the tokenizer as {type(tokenizer).__name__} and gives other ids "
            f"than {TOKENIZER_FILE} does"
        )
        yield warning("tokenizer-class", fact, TOKENIZER_ADVICE)


def refusal(load: Callable[[], Any]) -> UserError | None:
    """The mistake for which loading is refused; None if it is not refused."""
    try:
        load()
    except UserError as e:
        return e
    return None


def sentence(refused: UserError, path: str) -> str:
    """The message without the name of the folder."""
    return str(refused).removeprefix(f"{path}: ")
