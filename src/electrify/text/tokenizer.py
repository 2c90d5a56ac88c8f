"""Tokenizers as Hugging Face folders: trained ones, written so that AutoTokenizer gives the same
ids, and existing ones, with the frame of pre-training; their special ids and words.

"[MASK]" in a text is six characters everywhere, see `plain` and `reading_text`.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ..console import brief
from ..errors import UserError, failing_as
from ..files import read_json, sha256, written
from ..hub import must_be_reachable
from ..progress import say
from ..special import SpecialIds
from .corpus import TOKENIZER, Manifest
from .vocabulary import ONE_SPACE, SPACED_WORDS, patterns, steps, window_length

if TYPE_CHECKING:
    from ..tokens import WordEdges

MAX_LENGTH = 512
MAX_ID = 1 << 22
"""Ids without large holes may be larger."""
ROLES = {"pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
_NAMES = {f"{role}_token": name for role, name in (ROLES | {"unk": "[UNK]"}).items()}
TOKENIZER_FILE = "tokenizer.json"
SETTINGS_FILE = "tokenizer_config.json"
SENTENCEPIECE = ("spiece.model", "sentencepiece.bpe.model", "spm.model")
# Those that hold a vocabulary: a tokenizer is one of them, with or without settings.
VOCABULARY_FILES = (TOKENIZER_FILE, "vocab.txt", "vocab.json", *SENTENCEPIECE, "tokenizer.model")
TOKENIZER_FILES = (
    *VOCABULARY_FILES,
    SETTINGS_FILE,
    "special_tokens_map.json",
    "added_tokens.json",
    "merges.txt",
)
"""Nothing else in the folder of a tokenizer is copied or published."""
# Where a tokenizer came from and how it was loaded there, which is of no use to whoever gets it;
# and code and templates, which an encoder's tokenizer does not have.
_ORIGIN = (
    "auto_map",
    "cache_dir",
    "chat_template",
    "code_revision",
    "custom_pipelines",
    "fast_tokenizer_files",
    "is_local",
    "local_files_only",
    "name_or_path",
    "proxies",
    "revision",
    "special_tokens_map_file",
    "subfolder",
    "token",
    "tokenizer_file",
    "trust_remote_code",
    "use_auth_token",
)
# Documents have no NUL, so no text holds such a piece.
_NEVER = "\0"


# ------------------------------------------------------------------ files


def tokenizer_files(folder: Path) -> list[Path]:
    """The files of the list that are in the folder."""
    return [folder / name for name in TOKENIZER_FILES if (folder / name).is_file()]


def copy_tokenizer(source: Path, target: Path) -> list[str]:
    """Copies the files of the list into the folder `target` and returns their names."""
    target.mkdir(parents=True, exist_ok=True)
    found = tokenizer_files(source)
    for path in found:
        shutil.copyfile(path, target / path.name)
    return [path.name for path in found]


def read_settings(folder: Path) -> dict[str, Any]:
    """tokenizer_config.json, {} if there is none."""
    path = folder / SETTINGS_FILE
    return read_json(path) if path.is_file() else {}


def write_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """tokenizer_config.json as the library writes it."""
    text = json.dumps(settings, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
    (folder / SETTINGS_FILE).write_text(text, encoding="utf-8")


def without_origin(settings: Mapping[str, Any]) -> dict[str, Any]:
    """tokenizer_config.json as it is published. What begins with `_` is the library's own."""
    return {k: v for k, v in settings.items() if k not in _ORIGIN and not k.startswith("_")}


def read_tokenizer(folder: Path) -> dict[str, Any]:
    """tokenizer.json with a `model` that has a vocabulary. Raises UserError."""
    path = folder / TOKENIZER_FILE
    found = read_json(path)
    model = found.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict | list):
        raise UserError(f"{path} is not a tokenizer: it has no model with a vocabulary")
    return found


def tokenizer_sha256(folder: Path) -> str:
    """The identity of a vocabulary: the hash of tokenizer.json."""
    return sha256(folder / TOKENIZER_FILE)


# ------------------------------------------------------------------ loading


def load_tokenizer(name: str | Path) -> Any:
    """The transformers tokenizer in a folder or on the Hub. Raises UserError if there is none, or
    it is damaged, or it is not a fast tokenizer."""
    folder = Path(name)
    if folder.is_dir():
        usual = (TOKENIZER_FILE, "vocab.txt", SETTINGS_FILE)
        if not any((folder / f).is_file() for f in usual):
            inside = folder / TOKENIZER
            hint = f". Name {inside}" if (inside / TOKENIZER_FILE).is_file() else ""
            raise UserError(
                f"{folder} holds no tokenizer: it has neither {TOKENIZER_FILE} nor vocab.txt{hint}"
            )
        must_be_readable(folder)
        what = f"{folder} holds a damaged tokenizer"
    else:
        must_be_reachable(str(name), "tokenizer")
        what = f"the tokenizer {brief(str(name))} cannot be loaded from the Hub"
    from transformers import AutoTokenizer

    with failing_as(what), without_code(str(name)):
        tokenizer = AutoTokenizer.from_pretrained(str(name), trust_remote_code=False)
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise UserError(
            f"the tokenizer {name} has no fast version (tokenizer.json), which electrify needs"
        )
    must_be_steady(tokenizer, str(name))
    return tokenizer


def must_be_readable(folder: Path) -> None:
    """Raises UserError for a tokenizer that is a SentencePiece model alone, as DeBERTaV3's
    published ones are, if the library that reads it is not installed."""
    there = [name for name in SENTENCEPIECE if (folder / name).is_file()]
    if there and not (folder / TOKENIZER_FILE).is_file() and find_spec("sentencepiece") is None:
        raise UserError(f"{folder / there[0]} is read with a library: pip install sentencepiece")


@contextmanager
def without_code(name: str) -> Iterator[None]:
    """A context that raises a UserError if the library reports that a model brings its own code."""
    try:
        yield
    except ValueError as e:
        if "custom code" not in str(e):
            raise
        raise UserError(
            f"{name} brings Python code of its own (auto_map), which electrify never runs. Choose "
            "one that transformers knows"
        ) from e


def must_be_steady(tokenizer: Any, name: str) -> None:
    """Raises UserError if a tokenizer is random (BPE with dropout), or if one of its tokens has two
    roles that a model must tell apart."""
    model = getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)
    if dropout := getattr(model, "dropout", None):
        raise UserError(
            f"{name}: its tokenizer has a dropout of {dropout:g}: a text gives different "
            "tokens each time. Remove `dropout` from the model in tokenizer.json"
        )
    ids = _ids_of_roles(tokenizer)
    for one, other in combinations(ids, 2):
        # Left-to-right models use the token for unknown words as padding.
        if ids[one] is not None and ids[one] == ids[other] and {one, other} != {"pad", "unk"}:
            raise UserError(
                f"{name}: its tokenizer uses one token for several roles ({one}={ids[one]}, "
                f"{other}={ids[other]}); each needs its own: look at tokenizer_config.json"
            )


def _ids_of_roles(tokenizer: Any) -> dict[str, Any]:
    return {role: getattr(tokenizer, f"{role}_token_id", None) for role in (*ROLES, "unk")}


def special_ids(tokenizer: Any) -> SpecialIds:
    """The ids of the tokens with a role ([MASK] or <mask>, ...); [UNK] is -1 if there is none.
    Raises UserError naming the roles without a token."""
    ids = _ids_of_roles(tokenizer)
    missing = [shown for role, shown in ROLES.items() if ids[role] is None]
    if missing:
        where = getattr(tokenizer, "name_or_path", "") or "this tokenizer"
        raise UserError(
            f"the tokenizer {where} has no {', '.join(missing)} token. Choose one made for "
            "BERT-like models, or train one here"
        )
    if ids["unk"] == ids["pad"]:
        raise UserError(
            f"the tokenizer uses one token for several roles (pad={ids['pad']}, "
            f"unk={ids['unk']}); each needs its own"
        )
    unk = -1 if ids["unk"] is None else int(ids["unk"])
    known = {int(i) for i in ids.values() if i is not None}
    special = {int(i) for i in tokenizer.all_special_ids} | {
        int(i) for i, t in tokenizer.added_tokens_decoder.items() if t.special
    }
    return SpecialIds(
        int(ids["pad"]),
        unk,
        int(ids["cls"]),
        int(ids["sep"]),
        int(ids["mask"]),
        others=tuple(sorted(special - known)),
    )


def vocabulary_size(tokenizer: Any) -> int:
    """The number of rows that an embedding table needs: the largest id plus one. Raises UserError
    if the ids cannot be those of a vocabulary."""
    ids = list(tokenizer.get_vocab().values())
    size = max(ids, default=-1) + 1
    if len(set(ids)) < len(ids) or size > max(MAX_ID, 2 * len(ids)):
        raise UserError(
            f"the tokenizer has {len(ids):,} tokens with ids up to {size - 1:,}; it is damaged: "
            "ids count from 0 without large holes, each of one token"
        )
    return size


def must_be_of(manifest: Manifest, folder: Path) -> None:
    """Raises UserError if a tokenizer cannot be loaded, or is not the one that the ids of a corpus
    come from: its special tokens, or the number of its tokens, differ."""
    tokenizer = load_tokenizer(folder)
    found, wanted = asdict(special_ids(tokenizer)), asdict(manifest.special_ids)
    size = vocabulary_size(tokenizer)
    if size != manifest.vocab_size:
        odd = f"has {size:,} tokens, and manifest.json counts {manifest.vocab_size:,}"
    elif differing := [
        f"{role} is {found[role]}, and manifest.json says {wanted[role]}"
        for role in (*ROLES, "unk")
        if found[role] != wanted[role]
    ]:
        odd = f"has other special tokens ({'; '.join(differing)})"
    else:
        return
    raise UserError(f"{folder} {odd}; the two do not belong together: prepare the corpus again")


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


def save_trained(
    tokenizer: Any, folder: Path, *, kind: str, lowercase: bool, strip_accents: bool
) -> None:
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
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    files = {TOKENIZER_FILE: tokenizer.to_str(pretty=True)}
    if kind == "wordpiece" and like_bert:
        settings |= {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": lowercase,
            "strip_accents": strip_accents,
            "tokenize_chinese_chars": True,
        }
        vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
        files["vocab.txt"] = "".join(f"{token}\n" for token, _ in vocabulary)
    with written(folder) as part:
        part.mkdir(parents=True)
        for name, text in files.items():
            (part / name).write_text(text, encoding="utf-8")
        write_settings(part, settings)


def save_existing(name: str, folder: Path) -> None:
    """Writes the tokenizer in a folder or on the Hub to `folder`, with BERT's frame, which is
    reported if it had another. Raises UserError if it cannot be loaded, or lacks a special
    token."""
    tokenizer = load_tokenizer(name)
    special = special_ids(tokenizer)
    vocabulary_size(tokenizer)  # before the library writes a file with a line for every unused id
    if tokenizer.model_max_length > 1 << 20:  # transformers' way of saying that nobody set it
        tokenizer.model_max_length = MAX_LENGTH
    tokenizer.chat_template = None  # an encoder has no chat
    tokenizer.padding_side = tokenizer.truncation_side = "right"  # positions count from the left
    if not is_framed(tokenizer, special):
        _reframe(tokenizer, special, name)
    with TemporaryDirectory() as made:
        part = Path(made)
        with failing_as(f"{folder} could not be written"):
            tokenizer.save_pretrained(str(part))
        if not (part / TOKENIZER_FILE).is_file():
            raise UserError(
                f"the tokenizer {name} has no fast version (tokenizer.json), which `prepare` needs"
            )
        _must_read_back(part, special, name)
        write_settings(part, without_origin(read_settings(part)))
        with written(folder) as whole:
            copy_tokenizer(part, whole)


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


def _reframe(tokenizer: Any, special: SpecialIds, name: str) -> None:
    """Gives a tokenizer BERT's frame, and reports it."""
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


def _must_read_back(folder: Path, special: SpecialIds, name: str) -> None:
    """Raises UserError if the class that a folder names sets a frame of its own, and the plain
    class, which is then named in its place, does not read the frame either."""
    from transformers import AutoTokenizer

    with failing_as(f"the tokenizer {name} cannot be read back"):
        if is_framed(AutoTokenizer.from_pretrained(folder, trust_remote_code=False), special):
            return
        # The class that reads tokenizer.json as it is written.
        write_settings(
            folder, read_settings(folder) | {"tokenizer_class": "PreTrainedTokenizerFast"}
        )
        if is_framed(AutoTokenizer.from_pretrained(folder, trust_remote_code=False), special):
            return
    raise UserError(
        f"the tokenizer {name} does not put [CLS] before a text and [SEP] after it, with the "
        "second text of a pair as segment 1. Give its tokenizer.json a post-processor that does"
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

    described = read_tokenizer(folder)
    pieces = load_tokenizer(folder).get_vocab()
    specials = {t["content"] for t in described.get("added_tokens", []) if t.get("special")}
    first_V = torch.full((max(pieces.values()) + 1,), ALWAYS_BEGINS, dtype=torch.int8)
    last_V = first_V.clone()
    edges = _edges(described)
    if edges is None:
        raise UserError(
            f"mask_unit word: the tokenizer in {folder} does not mark where words begin "
            "(WordPiece, byte-level and Metaspace do, and character with --pre-tokenizer "
            "whitespace). Choose mask_unit token"
        )
    for piece, number in pieces.items():
        if piece not in specials:
            first_V[number], last_V[number] = edges(piece)
    return WordEdges(first_V, last_V)


def _edges(described: dict[str, Any]) -> Callable[[str], tuple[int, int]] | None:
    """Piece -> the classes of its first and of its last character, for the content of a
    tokenizer.json; None for a tokenizer that does not mark words."""
    from ..tokens import ALWAYS_BEGINS, ALWAYS_JOINS

    model = described["model"]
    split = described.get("pre_tokenizer")
    kinds = {step["type"]: step for step in [*steps(split), *steps(described.get("normalizer"))]}
    text_of = {c: bytes([b]) for c, b in _byte_alphabet().items()}

    def text(piece: str) -> str:
        return b"".join(text_of.get(c, b"?") for c in piece).decode("utf-8", "replace")

    def begins(joins: bool) -> tuple[int, int]:
        return (ALWAYS_JOINS if joins else ALWAYS_BEGINS), ALWAYS_BEGINS

    def between_spaces(piece: str) -> tuple[int, int]:
        """Whatever is not white space joins whatever is not white space."""
        first = ALWAYS_BEGINS if piece[:1].isspace() else LETTER
        return first, SIGN if piece[-1:].isspace() else LETTER

    def byte_level(piece: str) -> tuple[int, int]:
        piece = text(piece)
        first = ALWAYS_BEGINS if piece[:1].isspace() else _class(piece[:1])
        return first, ALWAYS_JOINS if piece == " " else _class(piece[-1:])

    def spaced_bytes(piece: str) -> tuple[int, int]:
        piece = text(piece)
        return (ALWAYS_BEGINS, ALWAYS_JOINS) if piece == " " else between_spaces(piece)

    if model.get("type") == "WordPiece" and model.get("continuing_subword_prefix") != "":
        prefix = model.get("continuing_subword_prefix") or "##"
        return lambda piece: begins(piece.startswith(prefix) and piece != prefix)
    if window_length(split):  # tokens cut by length say nothing about words
        return None
    if "ByteLevel" in kinds:
        return spaced_bytes if SPACED_WORDS in patterns(split) else byte_level
    if "Metaspace" in kinds:
        mark = kinds["Metaspace"].get("replacement", "\u2581")
        return lambda piece: begins(not piece.startswith(mark))
    if model.get("type") == "BPE" and patterns(split) == {ONE_SPACE}:
        return between_spaces
    return None


def _class(character: str) -> int:
    # Part of a character: in most texts, such split characters are letters.
    if character == "\ufffd" or character.isalpha():
        return LETTER
    return DIGIT if character.isnumeric() else SIGN


def _byte_alphabet() -> dict[str, int]:
    """The characters with which byte-level tokenizers write the 256 bytes: printable ones stand for
    themselves, the others are numbered from U+0100 on, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}
