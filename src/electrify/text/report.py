"""What `prepare` reports about a text: advice from a look at each source, the share of [UNK], the
statistics of the corpus as a table, and advice that follows from them. Advice changes nothing;
`doctor` gives the second kind as findings."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import UserError
from ..files import read_json
from ..progress import say
from .corpus import TOKENIZER, Manifest
from .documents import EMPTY_ROWS, documents
from .encode import UNK_CHARACTERS, UNK_DOCUMENTS, VISIBLE, WITHOUT_TOKENS, Encoder, counted
from .options import PRESETS, TRAINED, PrepareConfig, differing
from .sources import Source, shown
from .streams import text_chunks
from .tokenizer import read_tokenizer
from .vocabulary import SPECIALS, steps

LOG = "prepare.log.json"
LOOKED_AT = 1 << 18  # characters of a source; fewer of many sources
LOOKED_AT_IN_ALL = 1 << 22
LEAST = 500  # visible characters; less says nothing
LEAST_LINES = 50
# Shares of characters or lines.
NEARLY_ALL = 0.95
MOST = 0.7
# In prose some 3 % of the letters are upper case, four fifths of them at the beginning of a word.
CAPITALS = 0.05
INNER_CAPITALS = 0.5
INDENTED = 0.2
STATEMENTS = 0.4
# In English some 0.1 % of the words have an accent, in German 5 %, in French and Polish more.
ACCENTED = 0.01
_BASES = set("ACGTUNacgtun")
_AMINO_ACIDS = set("ACDEFGHIKLMNPQRSTVWYXBZUO*-")
_MOLECULE = re.compile(r"(?=\S*[Cc])(?=\S*[()=#\[\]1])[A-Za-z0-9@+\-\[\]()\\/%=#$.:~*]{3,}")
_STAMPED = re.compile(
    r"\W{0,2}(\d{4}[-/]\d\d[-/]\d\d|\d\d:\d\d:\d\d|[A-Z][a-z]{2} +\d+ \d\d:\d\d|\d{6,}[ .:]|"
    r"\d+\.\d+\.\d+\.\d+ )"
)
# The characters that BERT's normalisation sets apart, except rare ones.
_IDEOGRAPH = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_STATEMENT = re.compile(
    r"\s*(def|class|import|from|return|if|for|while|else|elif|public|private|static|const|let|var|"
    r"function|func|fn|use)\b|\s*(#|//|/\*|@|[})\]])|.*[;{}:(\[,]\s*$"
)


# ------------------------------------------------------------------ before: a look at each source


def keeping_accents(sources: list[Source], options: PrepareConfig) -> PrepareConfig:
    """The options, with accents kept where many words have one and the user did not say whether to
    remove them: in most languages but English they carry a meaning."""
    if not (options.trains_tokenizer and options.lowercase and options.strip_accents is None):
        return options
    files, limit = _looked_at(sources)
    words: list[str] = []
    for source in files:
        with suppress(UserError):
            words += _beginning(source, options, limit).split()
    share = accented(words)
    if share <= ACCENTED:
        return options
    why = f"because {share:.1%} of the words have one"
    say(f"accents are kept, {why}. --strip-accents removes them")
    return replace(options, strip_accents=False)


def _looked_at(sources: list[Source]) -> tuple[list[Source], int]:
    """The sources whose beginnings are looked at, and how many characters of each."""
    files = [s for s in sources if s.format not in ("hub", "pydocs")]
    return files, min(LOOKED_AT, LOOKED_AT_IN_ALL // max(len(files), 1) + 2 * LEAST)


def look(sources: list[Source], options: PrepareConfig) -> list[str]:
    """A line for each advice: which sources look like what, and which flags would suit them."""
    if not options.trains_tokenizer:
        return []
    files, limit = _looked_at(sources)
    short: dict[bool, list[Source]] = {}  # by whether they are text: too little each, or not in all
    texts: dict[bool, list[str]] = {}
    looks: dict[str, tuple[str, list[Source]]] = {}

    def judge(text: str, those: list[Source]) -> None:
        why, flags = _judged(text, those[0], options)
        if flags:
            looks.setdefault(flags, (why, []))[1].extend(those)

    for source in files:
        try:
            text = _beginning(source, options, limit)
        except UserError:  # whatever reads all of it says what is wrong
            continue
        if _visible(text) < LEAST:
            short.setdefault(_is_text(source), []).append(source)
            texts.setdefault(_is_text(source), []).append(text)
        else:
            judge(text, [source])
    for kind, those in short.items():
        joined = "\n\n".join(texts[kind])
        if _visible(joined) >= LEAST:
            judge(joined, those)
    return [
        f"{shown(those)} look{'s' * (len(those) == 1)} {why}: consider {flags}"
        for flags, (why, those) in looks.items()
    ]


def _is_text(source: Source) -> bool:
    return source.format in ("txt", "md")


def _visible(text: str) -> int:
    """The number of characters that are not white space."""
    return sum(map(len, text.split()))


def _beginning(source: Source, options: PrepareConfig, limit: int) -> str:
    """The first characters: of a text as it is, of rows their texts, a line each."""
    if _is_text(source):
        texts = (chunk.decode("utf-8", "ignore") for chunk in text_chunks(source.path))
    else:
        texts = (text + "\n" for text in documents(source, options, counts=Counter()))
    kept: list[str] = []
    size = 0
    for text in texts:
        kept.append(text[: limit - size])
        size += len(kept[-1])
        if size >= limit:
            break
    return "".join(kept)


def _judged(text: str, source: Source, options: PrepareConfig) -> tuple[str, str]:
    """What a text looks like, and the flags that would suit it; no flags if the options do, or if
    it does not look like anything in particular."""
    kind = kind_of(text)
    if kind is not None:
        flags = differing(kind, options)
        why, more = f"like {PRESETS[kind].about}", f"--preset {kind}, which is "
    else:
        found = list(_flags(text, source, options))
        flags = [flag for flag, _ in found]
        why, more = "as if " + " and ".join(why for _, why in found), ""
    if not _is_text(source):
        flags = [flag for flag in flags if not flag.startswith("--document-boundary")]
    return why, f"{more}{' '.join(flags)}" if flags else ""


def kind_of(text: str) -> str | None:
    """The preset that seems made for a text; None if it may well be prose."""
    lines = [line for line in text.splitlines() if line.strip()]
    words = text.split()
    visible = Counter("".join(words))
    total = sum(visible.values())
    if sum(visible[c] for c in _BASES) > NEARLY_ALL * total:
        return "dna"
    residues = sum(visible[c] for c in _AMINO_ACIDS)
    # Letter by letter, or without spaces: no word has the length of a word.
    usual = sum(len(word) for word in words if 1 < len(word) <= 20)
    if residues > NEARLY_ALL * total and usual < (1 - MOST) * total:
        return "protein"
    if _share(lines, lambda line: bool(_MOLECULE.fullmatch(line.split()[0]))) > NEARLY_ALL:
        return "smiles"
    if _share(lines, lambda line: bool(_STAMPED.match(line))) > MOST:
        return "logs"
    indented = _share(lines, lambda line: line[:1].isspace())
    statements = _share(lines, lambda line: bool(_STATEMENT.match(line)))
    return "code" if indented > INDENTED and statements > STATEMENTS else None


def _share(lines: list[str], holds: Callable[[str], bool]) -> float:
    return sum(map(holds, lines)) / max(len(lines), 1)


def _flags(text: str, source: Source, options: PrepareConfig) -> Iterator[tuple[str, str]]:
    """(flag, reason) for text of a kind that has no preset."""
    lines = [line for line in text.split("\n") if line.strip()]
    blank = re.search(r"\n[^\S\n]*\n", text.strip())
    by_blanks = source.format == "txt" and options.document_boundary == "auto"
    if by_blanks and len(lines) >= LEAST_LINES and blank is None:
        yield "--document-boundary line", "a line were a document (it has no blank line)"
    capitals = options.lowercase and case_has_meaning(text)
    if capitals:
        yield "--no-lowercase", "upper case carried a meaning"
    words = text.split()
    visible = sum(map(len, words))
    endless = sum(len(word) for word in words if len(word) > 100 and _of_letters(word))
    if options.pre_tokenizer == "auto" and endless > visible / 2:
        yield "--tokenizer bpe --pre-tokenizer none", "it had no spaces between words"
    elif options.tokenizer == "wordpiece" and len(_IDEOGRAPH.findall(text)) > (1 - MOST) * visible:
        why = "it had no spaces between words, and wordpiece took each of its characters by itself"
        yield "--tokenizer unigram", why
    share = accented(words)
    if options.accents_stripped and not capitals and share > ACCENTED:
        more = ", or --no-lowercase, which keeps case, too" * options.lowercase
        why = f"accents carried a meaning ({share:.1%} of the words have one, and all are removed)"
        yield f"--no-strip-accents{more} (docs/other_text.md)", why


def _of_letters(word: str) -> bool:
    """Whether a word has no signs. Thai and other scripts write vowels as marks between letters."""
    return all(c.isalnum() or unicodedata.category(c)[0] == "M" for c in word)


def accented(words: list[str]) -> float:
    """The share of the words with a letter that stripping accents changes: umlauts and vowel signs,
    too."""
    marked = {
        c
        for c in set().union(*words)
        if any(unicodedata.category(part) == "Mn" for part in unicodedata.normalize("NFD", c))
    }
    return sum(not marked.isdisjoint(word) for word in words) / max(len(words), 1)


def case_has_meaning(text: str) -> bool:
    """Whether many letters are upper case, and most of these are inside words."""
    letters = sum(map(str.isalpha, text))
    capitals = sum(map(str.isupper, text))
    inner = len(re.findall(r"(?<=[^\W\d_])[A-Z]", text))
    return capitals > CAPITALS * letters and inner > INNER_CAPITALS * capitals


# ------------------------------------------------------------------ what a tokenizer does not know

# Nothing can be learnt from [UNK], so a large share is a mistake in the choice of the tokenizer.
# Shares of the characters that are not white space.
WARNING = 0.01
REFUSAL = 0.1
SAMPLE = 1_000_000  # characters
SAMPLE_TEXTS = 1_000


def share_of(counts: Mapping[str, float]) -> float:
    """The share of the characters that became [UNK], white space apart."""
    return counts.get(UNK_CHARACTERS, 0) / max(counts[VISIBLE], 1)


def must_know_sample(tokenizer: Any, texts: list[str], options: PrepareConfig) -> None:
    """Raises UserError if a tokenizer does not know the text that it was trained on, before the
    rest is tokenised. texts: the sample in random order."""
    kept: list[str] = []
    size = 0
    for text in texts:
        if size > SAMPLE:
            break
        kept.append(text[:SAMPLE])
        size += len(text)
    encode = Encoder(tokenizer.to_str(), unk=SPECIALS.index("[UNK]"))
    counts = counted(kept, encode(kept)[2])
    if share_of(counts) > REFUSAL:
        must_know(counts, options, where="a sample of the text")


def must_know(counts: Mapping[str, float], options: PrepareConfig, *, where: str) -> None:
    """Warns if more than a hundredth of the characters became [UNK]; raises UserError if it is more
    than a tenth, unless options.allow_unk."""
    share = share_of(counts)
    if share <= WARNING:
        return
    sentence = (
        f"{share:.1%} of the characters of {where} are unknown to the tokenizer ([UNK]), half or "
        f"more of {int(counts.get(UNK_DOCUMENTS, 0)):,} of {int(counts['documents']):,} documents, "
        f"and nothing is learnt from them: {_cure(options)}"
    )
    if share > REFUSAL and not options.allow_unk:
        raise UserError(f"{sentence}; --allow-unk accepts it as it is")
    say(f"WARNING: {sentence}")


def _cure(options: PrepareConfig) -> str:
    if not options.trains_tokenizer:
        return (
            "train a tokenizer on this very text (leave --tokenizer out), or take one that was "
            "made for it"
        )
    other = "" if options.tokenizer == "character" else "--tokenizer character, or "
    return (
        f"give a larger --vocab-size or a lower --min-frequency, or take {other}"
        "--tokenizer byte, which has no [UNK]"
    )


def note_on_unknown(model: str, tokenizer: Any, texts: Iterable[str]) -> str:
    """A warning if so many characters of texts that a model is to read are unknown to its
    tokenizer (of transformers); else empty. Reads the first SAMPLE_TEXTS."""
    unknown = tokenizer.unk_token_id
    some = list(islice(texts, SAMPLE_TEXTS))
    if unknown is None or not tokenizer.is_fast or not some:
        return ""
    found = tokenizer(some, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    lost = sum(
        b - a
        for ids, offsets in zip(found["input_ids"], found["offset_mapping"], strict=True)
        for i, (a, b) in zip(ids, offsets, strict=True)
        if i == unknown
    )
    share = lost / max(1, sum(map(_visible, some)))
    if share <= WARNING:
        return ""
    return (
        f"warning: {share:.1%} of the characters are unknown to the tokenizer of {model} ([UNK]). "
        "Use a model made for this language or alphabet"
    )


# ------------------------------------------------------------------ after: the corpus

# An entry needs some dozens of occurrences before its embedding is more than its initial value.
RARE = 20
# A number of documents; fewer say little. Where this many are expected, there is at least one with
# a probability of 99 %.
WANTED = 5
# Letters that may be left out of a smaller vocabulary: each makes a word of ten [UNK].
LEFT_OUT = WARNING / 10
ANEW = "into another folder, or remove this corpus first"


def advice(manifest: Manifest, unigram_V: np.ndarray, folder: Path) -> Iterator[str]:
    """What `prepare` says after its work, a line each. unigram_V: how often each id occurs in the
    train split; folder: that of the corpus."""
    # Who asks for no validation, or brings a tokenizer, has reasons.
    if manifest.options.get("valid_fraction") and not manifest.documents("valid"):
        yield (
            "nothing is set aside for validation, so a run can warn neither of a dead generator "
            f"nor of overfitting: {more_validation(manifest)}"
        )
    used = use_of(manifest, unigram_V)
    if used.is_too_large and trained_here(manifest):
        cure = smaller(manifest, used.rare, unigram_V, folder)
        yield f"{used.fact}, and their embeddings hardly move: {cure}"


def more_validation(manifest: Manifest) -> str:
    """Advice on how to get validation documents. They are chosen by the hash of their text, so from
    a small corpus there may be none."""
    share = manifest.options.get("valid_fraction")
    documents = manifest.documents("train")
    default = PrepareConfig.__dataclass_fields__["valid_fraction"].default
    if not share and documents * default >= WANTED:
        return f"prepare with --valid-fraction {default}, {ANEW}"
    if documents >= 2 * WANTED:
        needed = max(-(-100 * WANTED // documents) / 100, round(2 * (share or 0), 2))
        return (
            f"of {documents:,} documents a share of {default if share is None else share:g} is too "
            f"small. Prepare with --valid-fraction {min(needed, 0.5)}, {ANEW}"
        )
    return (
        f"{documents:,} documents are too few to set some aside. Add more, or cut them at another "
        f"--document-boundary (blank-line, line), {ANEW}"
    )


class Use(NamedTuple):
    """How a text uses a vocabulary: its entries, those that never occur, and those that occur
    fewer than RARE times. Special tokens have no occurrences to count."""

    entries: int
    unused: int
    rare: int

    @property
    def is_too_large(self) -> bool:
        return self.rare > self.entries / 2

    @property
    def fact(self) -> str:
        v = self.entries
        return (
            f"of {v:,} entries of the vocabulary {self.unused:,} ({self.unused / v:.1%}) never "
            f"occur and {self.rare:,} ({self.rare / v:.1%}) fewer than {RARE} times"
        )


def use_of(manifest: Manifest, unigram_V: np.ndarray) -> Use:
    v = manifest.vocab_size
    if manifest.options.get("tokenizer") == "byte":
        return Use(v, 0, 0)  # every byte has an entry, whether the text has it or not
    own = np.delete(unigram_V, [i for i in manifest.special_ids.never_chosen if i < v])
    return Use(v, int((own == 0).sum()), int((own < RARE).sum()))


def trained_here(manifest: Manifest) -> bool:
    """Whether the tokenizer was trained on this text, rather than an existing one."""
    return manifest.options.get("tokenizer") in TRAINED


def smaller(manifest: Manifest, rare: int, unigram_V: np.ndarray, folder: Path) -> str:
    """Advice for getting a vocabulary that this text can fill, and that knows its letters."""
    v = manifest.vocab_size
    # A smaller one has hardly more than the letters; bpe has 256 bytes before its first piece.
    least = 512 if manifest.options.get("tokenizer") == "bpe" else 256
    size = max(least, 1 << max(0, (v - rare).bit_length() - 1))
    if size >= v:
        return "the text is too short for any vocabulary: add text"
    letters = letters_of(manifest, unigram_V, folder)
    while size < v and size < letters:
        size *= 2
    if size >= v:
        return "a smaller vocabulary would not know some letters of this text: add text"
    own = "a vocabulary for this text is smaller"
    if not trained_here(manifest):
        own = "train one on this text (leave --tokenizer out)"
    return f"{own}, --vocab-size {size} or so"


def letters_of(manifest: Manifest, unigram_V: np.ndarray, folder: Path) -> int:
    """How many entries the letters of a text take: all but LEFT_OUT of them, and those that
    continue words twice. 0 for a tokenizer that reads bytes, whose vocabularies know all."""
    described = read_tokenizer(folder / TOKENIZER)
    parts = [*steps(described.get("pre_tokenizer")), *steps(described.get("normalizer"))]
    if any(step.get("type") == "ByteLevel" for step in parts):
        return 0
    model = described["model"]
    prefix = model.get("continuing_subword_prefix") or ""
    vocab = model["vocab"]
    pieces = vocab if isinstance(vocab, dict) else {row[0]: i for i, row in enumerate(vocab)}
    counts: Counter[str] = Counter()
    for piece, i in pieces.items():
        if i not in manifest.special_ids.never_chosen and i != manifest.special_ids.unk:
            for letter in piece.removeprefix(prefix):
                counts[letter] += int(unigram_V[i])
    ranked = counts.most_common()
    if model.get("type") == "Unigram":  # it takes all of them
        return len(ranked) + len(SPECIALS)
    covered = np.cumsum([n for _, n in ranked])
    kept = int(np.searchsorted(covered, (1 - LEFT_OUT) * covered[-1])) + 1
    return len(SPECIALS) + sum(
        1 + (bool(prefix) and prefix + c in pieces) for c, _ in ranked[:kept]
    )


# ------------------------------------------------------------------ the table


def report(manifest: Manifest, *, folder: Path | None = None) -> str:
    """The statistics of the corpus, as a table in plain text. With `folder` (that of the manifest),
    it also has the seconds and the rate of the run that made it."""
    c = defaultdict(float, manifest.counts)
    options = manifest.options
    rows = [
        ("documents", f"{c['documents']:,.0f}"),
        ("  of them validation", f"{manifest.documents('valid'):,}"),
        ("words", f"{c['words']:,.0f}"),
        ("tokens", f"{c['tokens']:,.0f}"),
        ("tokens per word", f"{c['tokens'] / max(c['words'], 1):.3f}"),
        ("[UNK] rate", f"{c['unk_tokens'] / max(c['tokens'], 1):.4%}"),
        ("  of the characters", f"{share_of(c):.4%}"),
        ("  documents, half or more", f"{c[UNK_DOCUMENTS]:,.0f}"),
        ("duplicates dropped", f"{c['duplicates']:,.0f}"),
        ("vocabulary", f"{manifest.vocab_size:,}"),
    ]
    if trained_here(manifest):
        case = "lower" if options["lowercase"] else "kept"
        accents = "removed" if options["strip_accents"] else "kept"
        rows.append(("case", f"{case}, accents {accents}"))
    rows.append(("text", f"{c['bytes'] / 1e6:,.1f} MB"))
    for name, title in (
        (EMPTY_ROWS, "rows without text"),
        ("encoding_errors", "not UTF-8 (documents)"),
        ("nul_characters", "NUL characters removed"),
        ("cuts", "cuts in very long documents"),
        (WITHOUT_TOKENS, "documents without a token"),
    ):
        if c[name]:
            rows.append((title, f"{c[name]:,.0f}"))
    if folder is not None and (folder / LOG).is_file():
        rows += _speed(read_json(folder / LOG), c["bytes"] / 1e6)
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _speed(log: dict[str, Any], megabytes: float) -> list[tuple[str, str]]:
    seconds, parts, reused = log["seconds"], log["parts"], log["parts_reused"]
    steps = ", ".join(f"{name} {value:.1f}" for name, value in seconds.items() if name != "total")
    total, encode = (megabytes / max(seconds[name], 1e-9) for name in ("total", "encode"))
    return [
        ("seconds", f"{seconds['total']:.1f} ({steps})"),
        ("  not counted", f"{reused} of {parts} parts, which an earlier attempt made")
        if reused
        else ("MB/s", f"{total:.2f} in all, {encode:.2f} encoding"),
    ]
