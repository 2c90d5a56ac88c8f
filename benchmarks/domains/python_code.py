"""Python: the first word of a function's name (get, set, is, ...) from what the function does.

    python benchmarks/domains/python_code.py --package SITE-PACKAGES-OR-WHEEL... --output-dir DATA

Functions with a name of several words (`get_value`, `_is_open`), of 3 to 40 lines, outside of
tests; the classes are the most frequent first words. A function's parameters and body are shown:
the name is `f`, also where the body uses it, and the docstring is left away. Whole packages (the
first part of a file's path) are held out, and held-out functions that stand in another package,
too, are left out. train.jsonl and heldout.jsonl: the keys code and label. corpus/: the source files
of the packages that are not held out.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import textwrap
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from labelled import Example, balanced, share_of, shares, write_table
from packages import members

HELD_OUT_SHARE = 0.3
SHORTEST, LONGEST, WIDEST = 3, 40, 2000  # lines, lines, characters of a function
LARGEST_FILE = 100_000
NAME = re.compile(r"_{0,2}([a-z]+)_\w*[a-z0-9]")  # several words, and not __init__


@dataclass(frozen=True)
class File:
    package: str
    name: str
    text: str


def files(packages: list[Path], most_bytes: int, seed: int) -> Iterator[File]:
    """Source files without tests and copies of other packages; of a large package, files drawn by
    the seed until there are most_bytes."""
    by_package: dict[str, list[File]] = {}
    for package in packages:
        for name, content in members(package, _is_source):
            top = name.partition("/")[0].removesuffix(".py")
            if len(content) <= LARGEST_FILE and (text := _decoded(content)):
                by_package.setdefault(top, []).append(File(top, name, text))
    for _, those in sorted(by_package.items()):
        left = most_bytes
        for one in sorted(those, key=lambda file: share_of(file.name, seed)):
            if len(one.text) <= left:
                left -= len(one.text)
                yield one


def functions(file: File) -> Iterator[tuple[str, str]]:
    """(first word of its name, its text without the name) of each function that suits."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in what others wrote
            tree = ast.parse(file.text)
    except (SyntaxError, ValueError, RecursionError):
        return
    lines = file.text.splitlines()
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        word = NAME.fullmatch(node.name)
        if word is None or (text := masked(node, lines)) is None:
            continue
        yield word[1], text


def masked(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> str | None:
    """The function without name, decorators and docstring; None if what is left is too short or
    too long."""
    assert node.end_lineno is not None
    body = node.body
    first = body[0]
    kept = list(range(node.lineno, node.end_lineno + 1))
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        if len(body) == 1 or first.lineno <= node.lineno or body[1].lineno <= first.lineno:
            return None
        assert first.end_lineno is not None
        kept = [k for k in kept if not first.lineno <= k <= first.end_lineno]
    text = textwrap.dedent("\n".join(lines[k - 1] for k in kept))
    text = re.sub(rf"\b{re.escape(node.name)}\b", "f", text)
    return text if SHORTEST <= len(kept) <= LONGEST and len(text) <= WIDEST else None


def _is_source(name: str) -> bool:
    parts = name.split("/")
    return name.endswith(".py") and not any(
        part in ("tests", "test", "testing", "_vendor", "vendor", "site-packages")
        or part.startswith(("test_", "conftest"))
        for part in parts
    )


def _decoded(content: bytes) -> str:
    """Empty for a file that is not UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return ""


def squeezed(text: str) -> str:
    """A function without white space, so that copies are equal whatever their indentation."""
    return re.sub(r"\s+", "", text)


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--package", type=Path, nargs="+", required=True, help="folders and wheels")
    p.add_argument("--output-dir", type=Path, required=True)
    p.add_argument("--classes", type=int, default=8)
    p.add_argument("--train-examples", type=int, default=2000)
    p.add_argument("--heldout-examples", type=int, default=800)
    p.add_argument("--most-mb", type=float, default=1.0, help="of one package")
    p.add_argument("--seed", type=int, default=0)
    a = p.parse_args()
    if (a.output_dir / "corpus").exists():
        raise SystemExit(f"{a.output_dir / 'corpus'} is there already, and may hold other files")
    sources = list(files(a.package, int(a.most_mb * 1e6), a.seed))
    sides: list[list[Example]] = [[], []]
    known: set[str] = set()  # every function of the packages that are not held out
    words: Counter[str] = Counter()
    for source in sources:
        held_out = share_of(source.package, a.seed) < HELD_OUT_SHARE
        for word, text in functions(source):
            sides[held_out].append(Example(text, word))
            if not held_out:
                known.add(squeezed(text))
                words[word] += 1
    classes = {word for word, _ in words.most_common(a.classes)}
    once = {squeezed(one.text): one for one in sides[0] if one.label in classes}
    later = {squeezed(one.text): one for one in sides[1] if one.label in classes}
    rng = random.Random(a.seed)
    train = balanced(list(once.values()), a.train_examples, rng)
    apart = [one for key, one in later.items() if key not in known]
    held = balanced(apart, a.heldout_examples, rng)
    corpus = [one for one in sources if share_of(one.package, a.seed) >= HELD_OUT_SHARE]
    for one in corpus:
        path = a.output_dir / "corpus" / one.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(one.text, encoding="utf-8")
    print(f"corpus: {len(corpus)} files of {len({one.package for one in corpus})} packages")
    for name, side in (("train", train), ("heldout", held)):
        write_table(a.output_dir / f"{name}.jsonl", ("code", "label"), side)
        print(shares(name, side))


if __name__ == "__main__":
    main()
