"""A look at the first part of the text, and what one would choose differently for it. It is advice
for the user and changes nothing."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator

from ..errors import UserError
from . import documents
from .options import PRESETS, PrepareConfig, differing
from .sources import Source
from .streams import text_chunks

LOOKED_AT = 1 << 18  # characters
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
_BASES = set("ACGTUNacgtun")
_AMINO_ACIDS = set("ACDEFGHIKLMNPQRSTVWYXBZUO*-")
_MOLECULE = re.compile(r"(?=\S*[Cc])(?=\S*[()=#\[\]1])[A-Za-z0-9@+\-\[\]()\\/%=#$.:~*]{3,}")
_STAMPED = re.compile(
    r"\W{0,2}(\d{4}[-/]\d\d[-/]\d\d|\d\d:\d\d:\d\d|[A-Z][a-z]{2} +\d+ \d\d:\d\d|\d{6,}[ .:]|"
    r"\d+\.\d+\.\d+\.\d+ )"
)
# In English some .1 % of the words have an accent, in German 5 %, in French and Polish more.
ACCENTED = 0.01
# The characters that BERT's normalisation sets apart, except rare ones.
_IDEOGRAPH = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_STATEMENT = re.compile(
    r"\s*(def|class|import|from|return|if|for|while|else|elif|public|private|static|const|let|var|"
    r"function|func|fn|use)\b|\s*(#|//|/\*|@|[})\]])|.*[;{}:(\[,]\s*$"
)


def advice(sources: list[Source], options: PrepareConfig) -> str:
    """One line that says what the first part of the text looks like and which flags would suit it;
    empty if the options suit it, or if it does not look like anything in particular."""
    source = next((s for s in sources if s.format not in ("hub", "pydocs")), None)
    if source is None:
        return ""
    try:
        text = _beginning(source, options)
    except UserError:  # whatever reads all of it says what is wrong
        return ""
    words = text.split()
    if sum(map(len, words)) < LEAST:
        return ""
    kind = kind_of(text)
    if kind is not None:
        flags = differing(kind, options)
        looks = f"like {PRESETS[kind].about}"
        more = f"--preset {kind}, which is "
    else:
        flags = list(_flags(text, source, options))
        looks = "as if " + " and ".join(why for _, why in flags)
        flags = [flag for flag, _ in flags]
        more = ""
    if source.format not in ("txt", "md"):
        flags = [flag for flag in flags if not flag.startswith("--document-boundary")]
    if not flags or not options.trains_tokenizer:
        return ""
    return f"{source.name} looks {looks}: consider {more}{' '.join(flags)}"


def _beginning(source: Source, options: PrepareConfig) -> str:
    """The first LOOKED_AT characters: of a text as it is, of rows their texts, a line each."""
    kept: list[str] = []
    size = 0
    for text in _texts(source, options):
        kept.append(text[: LOOKED_AT - size])
        size += len(kept[-1])
        if size >= LOOKED_AT:
            break
    return "".join(kept)


def _texts(source: Source, options: PrepareConfig) -> Iterator[str]:
    if source.format in ("txt", "md"):
        for chunk in text_chunks(source.path):
            yield chunk.decode("utf-8", "ignore")
        return
    for text in documents.documents(source, options, counts=Counter()):
        yield text + "\n"


def kind_of(text: str) -> str | None:
    """The preset that seems made for a text; None if it may well be prose."""
    lines = [line for line in text.splitlines() if line.strip()]
    words = text.split()
    visible = Counter("".join(words))
    total = sum(visible.values())
    if sum(visible[c] for c in _BASES) > NEARLY_ALL * total:
        return "dna"
    residues = sum(visible[c] for c in _AMINO_ACIDS)
    if residues > NEARLY_ALL * total and _without_words(words):
        return "protein"
    if _share(lines, lambda line: bool(_MOLECULE.fullmatch(line.split()[0]))) > NEARLY_ALL:
        return "smiles"
    if _share(lines, lambda line: bool(_STAMPED.match(line))) > MOST:
        return "logs"
    indented = _share(lines, lambda line: line[:1].isspace())
    statements = _share(lines, lambda line: bool(_STATEMENT.match(line)))
    return "code" if indented > INDENTED and statements > STATEMENTS else None


def _without_words(words: list[str]) -> bool:
    """Whether the text is letter by letter, or without spaces: no word has the length of a word."""
    usual = sum(len(word) for word in words if 1 < len(word) <= 20)
    return usual < (1 - MOST) * sum(map(len, words))


def _share(lines: list[str], holds: Callable[[str], bool]) -> float:
    return sum(map(holds, lines)) / max(len(lines), 1)


def _flags(text: str, source: Source, options: PrepareConfig) -> Iterator[tuple[str, str]]:
    """(flag, reason) for text of a kind that has no preset."""
    lines = [line for line in text.split("\n") if line.strip()]
    blank = re.search(r"\n[^\S\n]*\n", text.strip())
    if (
        source.format == "txt"
        and options.document_boundary == "auto"
        and len(lines) >= LEAST_LINES
        and blank is None
    ):
        yield "--document-boundary line", "a line were a document (it has no blank line)"
    if options.lowercase and case_has_meaning(text):
        yield "--no-lowercase", "upper case carried a meaning"
    words = text.split()
    visible = sum(map(len, words))
    endless = sum(len(word) for word in words if len(word) > 100 and _of_letters(word))
    ideographs = len(_IDEOGRAPH.findall(text))
    if options.pre_tokenizer == "auto" and endless > visible / 2:
        yield "--tokenizer bpe --pre-tokenizer none", "it had no spaces between words"
    elif options.tokenizer == "wordpiece" and ideographs > (1 - MOST) * visible:
        why = "it had no spaces between words, and wordpiece took each of its characters by itself"
        yield "--tokenizer unigram", why
    if options.accents_stripped and not (options.lowercase and case_has_meaning(text)):
        yield from _keeping_accents(words, options)


def _of_letters(word: str) -> bool:
    """Whether a word has no signs. Thai and other scripts write vowels as marks between letters."""
    return all(c.isalnum() or unicodedata.category(c)[0] == "M" for c in word)


def _keeping_accents(words: list[str], options: PrepareConfig) -> Iterator[tuple[str, str]]:
    share = accented(words)
    if share > ACCENTED:
        more = ", or --no-lowercase, which keeps case, too" * options.lowercase
        why = f"accents carried a meaning ({share:.1%} of the words have one, and all are removed)"
        yield f"--no-strip-accents{more} (docs/other_text.md)", why


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
