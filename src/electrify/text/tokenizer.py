"""Tokenizers as Hugging Face folders: trained ones, written so that AutoTokenizer gives the same
ids, and existing ones, with the frame of pre-training; their special ids and words.

"[MASK]" in a text is six characters everywhere, see `plain` and `reading_text`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError, failing_as, need
from ..files import read_json, written
from ..hub import must_be_reachable
from ..progress import say
from ..values import SpecialIds
from .corpus import TOKENIZER
from .options import PrepareConfig
from .vocabulary import ONE_SPACE, SPACED_WORDS, frame, patterns, steps, window_length

if TYPE_CHECKING:
    from ..tokens import WordEdges

MAX_LENGTH = 512
PLAIN_CLASS = "PreTrainedTokenizerFast"
ROLES = {"pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
_NAMES = {f"{role}_token": name for role, name in (ROLES | {"unk": "[UNK]"}).items()}
TOKENIZER_FILE = "tokenizer.json"
SETTINGS_FILE = "tokenizer_config.json"
# Those that hold a vocabulary: a tokenizer is one of them, with or without settings.
VOCABULARY_FILES = (
    *(TOKENIZER_FILE, "vocab.txt", "vocab.json"),
    *("spiece.model", "sentencepiece.bpe.model", "spm.model", "tokenizer.model"),
)
TOKENIZER_FILES = (
    *(*VOCABULARY_FILES, SETTINGS_FILE),
    *("special_tokens_map.json", "added_tokens.json", "merges.txt"),
)
"""Nothing else in the folder of a tokenizer is copied or published."""
# Where a tokenizer came from and how it was loaded there, which is of no use to whoever gets it;
# and code and templates, which an encoder's tokenizer does not have.
_ORIGIN = (
    *("auto_map", "cache_dir", "chat_template", "code_revision", "custom_pipelines"),
    *("fast_tokenizer_files", "is_local", "local_files_only", "name_or_path", "proxies"),
    *("revision", "special_tokens_map_file", "subfolder", "token", "tokenizer_file"),
    *("trust_remote_code", "use_auth_token"),
)
# Documents have no NUL, so no text holds such a piece.
_NEVER = "\0"


# ------------------------------------------------------------------ files


def tokenizer_files(folder: Path) -> list[Path]:
    """The files of the list that are in the folder."""
    return [folder / name for name in TOKENIZER_FILES if (folder / name).is_file()]


def rewrite_settings(folder: Path, **changes: Any) -> None:
    """Writes tokenizer_config.json as it is published: with these changes, and without where the
    tokenizer came from. (What begins with `_` is the library's own.)"""
    path = folder / SETTINGS_FILE
    had = read_json(path) if path.is_file() else {}
    kept = {k: v for k, v in had.items() if k not in _ORIGIN and not k.startswith("_")}
    text = json.dumps({**kept, **changes}, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
    path.write_text(text, encoding="utf-8")


# ------------------------------------------------------------------ loading


def load_tokenizer(name: str | Path) -> Any:
    """The transformers tokenizer in a folder or on the Hub, as it is: exporting.loading has the one
    to which "[MASK]" in a text is text. Raises UserError if there is none, or it is damaged, or it
    is not a fast tokenizer."""
    folder = Path(name)
    if folder.is_dir():
        fact = f"{folder} holds no tokenizer (none of {', '.join(VOCABULARY_FILES[:3])}, ...)"
        found = any((folder / file).is_file() for file in VOCABULARY_FILES)
        need(found, fact, f"that of a corpus or run is in its folder {TOKENIZER}")
    else:
        must_be_reachable(str(name), "tokenizer")
    from transformers import AutoTokenizer

    with failing_as(f"the tokenizer {name} cannot be loaded"):
        tokenizer = AutoTokenizer.from_pretrained(str(name), trust_remote_code=False)
    is_fast = getattr(tokenizer, "backend_tokenizer", None) is not None
    fact = f"the tokenizer {name} has no fast version (tokenizer.json), which electrify needs"
    need(is_fast, fact)
    return tokenizer


def special_ids(tokenizer: Any) -> SpecialIds:
    """The ids of the tokens with a role ([MASK] or <mask>, ...); [UNK] is -1 if there is none.
    Raises UserError for a role without a token, and for a token with several roles."""
    ids = {role: getattr(tokenizer, f"{role}_token_id") for role in (*ROLES, "unk")}
    shown = f"the tokenizer {tokenizer.name_or_path}"
    missing = [name for role, name in ROLES.items() if ids[role] is None]
    advice = "choose one made for BERT-like models, or train one here"
    need(not missing, f"{shown} has no {', '.join(missing)} token", advice)
    fact = f"{shown} uses one token for several roles ({ids}); each needs its own"
    need(len(set(ids.values())) == len(ids), fact)
    special = {int(i) for i in tokenizer.all_special_ids} | {
        int(i) for i, t in tokenizer.added_tokens_decoder.items() if t.special
    }
    others = tuple(sorted(special - set(ids.values())))
    found = {role: -1 if i is None else int(i) for role, i in ids.items()}
    return SpecialIds(**found, others=others)


def vocabulary_size(tokenizer: Any) -> int:
    """The number of rows that an embedding table needs: the largest id plus one."""
    return max(tokenizer.get_vocab().values(), default=-1) + 1


# ------------------------------------------------------------------ special tokens in texts


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
    # A list is Unigram's, [piece, score] each.
    pairs = list(known.items() if isinstance(known, dict) else known)
    special = {token["content"] for token in whole["added_tokens"] if token["special"]}
    special &= {piece for piece, _ in pairs}
    pairs = [(_NEVER * (piece in special) + piece, its) for piece, its in pairs]
    model["vocab"] = dict(pairs) if isinstance(known, dict) else pairs
    if (unknown := model.get("unk_token")) in special:
        model["unk_token"] = _NEVER + unknown
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


def reading_text(tokenizer: Any) -> Any:
    """Makes a transformers tokenizer read special tokens in a text as text, as `prepare` does.
    Returns it; its attribute `original` is a copy of what it was, which can be saved."""
    original = copy.deepcopy(tokenizer)
    tokenizer.split_special_tokens = True
    if (backend := getattr(tokenizer, "backend_tokenizer", None)) is not None:
        backend.model = plain(backend.to_str()).model
    tokenizer.original = original
    return tokenizer


def tokenised(tokenizer: Any, text: str) -> Any:
    """The tokens of a text without special ones, as the library gives them: input_ids, with a fast
    tokenizer offset_mapping, word_ids() and tokens(). Of any length, without its warning."""
    how = {"add_special_tokens": False, "return_offsets_mapping": tokenizer.is_fast}
    return tokenizer(text, verbose=False, **how)


# ------------------------------------------------------------------ saving


def save_trained(tokenizer: Any, folder: Path, options: PrepareConfig) -> None:
    """A trained `tokenizers.Tokenizer` as a folder for AutoTokenizer: tokenizer.json,
    tokenizer_config.json and, for WordPiece as BERT has it, vocab.txt.

    transformers builds a BertTokenizer from the vocabulary and these settings, and ignores the
    normaliser and the pre-tokenizer in tokenizer.json, so both must say the same.
    """
    like_bert = json.loads(tokenizer.to_str())["pre_tokenizer"] == {"type": "BertPreTokenizer"}
    settings: dict[str, Any] = {
        **_NAMES,
        "model_max_length": MAX_LENGTH,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        "tokenizer_class": PLAIN_CLASS,
    }
    with written(folder) as part:
        part.mkdir(parents=True)
        if options.tokenizer == "wordpiece" and like_bert:
            settings |= {
                "tokenizer_class": "BertTokenizer",
                "do_lower_case": options.lowercase,
                "strip_accents": options.accents_stripped,
                "tokenize_chinese_chars": True,
            }
            pieces = tokenizer.get_vocab()
            lines = "".join(f"{piece}\n" for piece in sorted(pieces, key=pieces.__getitem__))
            (part / "vocab.txt").write_text(lines, encoding="utf-8")
        (part / TOKENIZER_FILE).write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
        rewrite_settings(part, **settings)


def save_existing(name: str, folder: Path) -> None:
    """Writes the tokenizer in a folder or on the Hub to `folder`, with BERT's frame, which is
    reported if it had another. Raises UserError if it cannot be loaded, or lacks a special
    token."""
    tokenizer = load_tokenizer(name)
    special = special_ids(tokenizer)
    if tokenizer.model_max_length > 1 << 20:  # transformers' way of saying that nobody set it
        tokenizer.model_max_length = MAX_LENGTH
    tokenizer.chat_template = None  # an encoder has no chat
    tokenizer.padding_side = tokenizer.truncation_side = "right"  # positions count from the left
    framed = is_framed(tokenizer, special)
    if not framed:
        _reframe(tokenizer, special, name)
    with written(folder) as part:
        tokenizer.save_pretrained(part)
        # The class that reads tokenizer.json as it is written.
        rewrite_settings(part, **({} if framed else {"tokenizer_class": PLAIN_CLASS}))


def is_framed(tokenizer: Any, special: SpecialIds) -> bool:
    """Whether a single text stands between [CLS] and [SEP], and a pair has token types 0 and then
    1. Pairs may have further separators."""
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    types = tokenizer("a", "a", return_token_type_ids=True)["token_type_ids"]
    single = tokenizer("a")["input_ids"] == [special.cls, *bare, special.sep]
    return single and set(types) == {0, 1} and types == sorted(types)


def _reframe(tokenizer: Any, special: SpecialIds, name: str) -> None:
    """Gives a tokenizer BERT's frame, and reports it."""
    from tokenizers.processors import ByteLevel, Sequence

    first, last = tokenizer.convert_ids_to_tokens([special.cls, special.sep])
    berts = frame((first, special.cls), (last, special.sep))
    backend = tokenizer.backend_tokenizer
    # RoBERTa's also leaves the space before a word out of its offsets.
    trims = getattr(backend.post_processor, "trim_offsets", False)
    backend.post_processor = Sequence([ByteLevel(trim_offsets=True), berts]) if trims else berts
    say(
        f"the tokenizer {name} does not frame texts as pre-training does ({first}, the text, "
        f"{last}; the second text of a pair as segment 1): its copy in the corpus does"
    )


# ------------------------------------------------------------------ where words begin

# The classes of characters that byte-level tokenizers separate.
LETTER, DIGIT, SIGN = 1, 2, 3


def word_edges(folder: Path) -> WordEdges:
    """How the tokens of the tokenizer in `folder` join into words, to mask whole words.

    WordPiece: a token with the continuation prefix joins the token before it. Metaspace
    (SentencePiece): a token without the mark of a space joins. Byte-level: a token without a space
    joins a token whose last character is of the same class as its own first one (letter, digit or
    sign) or is a space that stands alone. (In a contraction, which the splitting keeps whole, the
    sign and the letters count as two words if they are two tokens.) What is split at white space
    only: everything up to the next white space is a word. Raises UserError for other tokenizers,
    those of text without words among them.
    """
    import torch

    from ..tokens import ALWAYS_BEGINS, WordEdges

    described = read_json(folder / TOKENIZER_FILE)
    edges = _edges(described)
    if edges is None:
        fact = f"mask_unit word: the tokenizer in {folder} does not mark where words begin"
        kinds = (
            "WordPiece, byte-level and Metaspace do, and character with --pre-tokenizer whitespace"
        )
        raise UserError(fact, f"choose mask_unit token. {kinds}")
    pieces = load_tokenizer(folder).get_vocab()
    special = {token["content"] for token in described["added_tokens"] if token["special"]}
    first_V = torch.full((max(pieces.values()) + 1,), ALWAYS_BEGINS, dtype=torch.int8)
    last_V = first_V.clone()
    for piece, number in pieces.items():
        if piece not in special:
            first_V[number], last_V[number] = edges(piece)
    return WordEdges(first_V, last_V)


def _edges(described: dict[str, Any]) -> Callable[[str], tuple[int, int]] | None:
    """Piece -> the classes of its first and of its last character, for the content of a
    tokenizer.json; None for a tokenizer that does not mark words."""
    from tokenizers.decoders import ByteLevel

    from ..tokens import ALWAYS_BEGINS, ALWAYS_JOINS

    model = described["model"]
    split = described.get("pre_tokenizer")
    kinds = {step["type"]: step for step in [*steps(split), *steps(described.get("normalizer"))]}

    def begins(joins: bool) -> tuple[int, int]:
        return (ALWAYS_JOINS if joins else ALWAYS_BEGINS), ALWAYS_BEGINS

    def ends(piece: str, class_of: Callable[[str], int], *, space: int) -> tuple[int, int]:
        """space: the last class of a space that stands alone."""
        first = ALWAYS_BEGINS if piece[:1].isspace() else class_of(piece[:1])
        return first, space if piece == " " else class_of(piece[-1:])

    if model.get("type") == "WordPiece" and model.get("continuing_subword_prefix") != "":
        prefix = model.get("continuing_subword_prefix") or "##"
        return lambda piece: begins(piece.startswith(prefix) and piece != prefix)
    if window_length(split):  # tokens cut by length say nothing about words
        return None
    if "ByteLevel" in kinds:
        text = ByteLevel().decode
        classes = _between_spaces if SPACED_WORDS in patterns(split) else _class
        return lambda piece: ends(text([piece]), classes, space=ALWAYS_JOINS)
    if "Metaspace" in kinds:
        mark = kinds["Metaspace"].get("replacement", "\u2581")
        return lambda piece: begins(not piece.startswith(mark))
    if model.get("type") == "BPE" and patterns(split) == {ONE_SPACE}:
        return lambda piece: ends(piece, _between_spaces, space=SIGN)
    return None


def _between_spaces(character: str) -> int:
    """Whatever is not white space joins whatever is not white space."""
    return SIGN if character.isspace() else LETTER


def _class(character: str) -> int:
    # Part of a character: in most texts, such split characters are letters.
    if character == "\ufffd" or character.isalpha():
        return LETTER
    return DIGIT if character.isnumeric() else SIGN
