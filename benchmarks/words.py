"""`make words`: how the pages, the help and the messages read.

    python benchmarks/words.py

For each of them: sentences, mean words, the share over 30 words, semicolons per 100 sentences,
decimals without a leading zero, and private words. Then the ten longest sentences. It informs, and
a reader decides.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from electrify import cli

ROOT = Path(__file__).parent.parent
LONG = 30
PRIVATE = re.compile(
    r"\b(trunk|plateau|the declared score|S[123]|planted|seal|glimpse|by what|for certain)\b", re.I
)
BARE = re.compile(r"(?<![\w.])\.\d")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
SENTENCE = re.compile(r"(?<=[.!?])[)\"'`*]*\s+(?=[A-Z`\"*\[(])")
SPEAKING = {"UserError", "need", "say"}


def prose(page: str) -> Iterator[str]:
    """The paragraphs and list items of a page, without code, tables, headings and link targets."""
    page = FENCE.sub("", page)
    page = re.sub(r"\]\([^)]*\)", "]", page)
    for block in re.split(r"\n\s*\n|\n(?=\s*[-*] )|\n(?=\s*\d+\. )", page):
        text = " ".join(block.split())
        if text and not text.startswith(("#", "|", "![")):
            yield text.removeprefix("- ")


def helps() -> Iterator[str]:
    for name in cli.COMMANDS:
        for option in cli.options_of(cli.class_of(name)):
            yield from re.sub(r"\[default: [^]]*\]", "", option.help).splitlines()


def messages() -> Iterator[str]:
    """The text of errors and of lines that are printed; values are `X`."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = getattr(getattr(node, "func", None), "id", "")
            if isinstance(node, ast.Call) and name in SPEAKING:
                for argument in node.args:
                    yield spoken(argument)


def spoken(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(spoken(p) if isinstance(p, ast.Constant) else "X" for p in parts)
        case ast.BinOp(left=left, right=right):
            return spoken(left) + spoken(right)
    return ""


def sentences(texts: Iterator[str]) -> list[str]:
    found = (s.strip() for text in texts for s in SENTENCE.split(text))
    return [s for s in found if len(s.split()) > 1]


def main() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    parts = {
        "README": sentences(prose(pages[0].read_text(encoding="utf-8"))),
        "docs": sentences(t for p in pages[1:] for t in prose(p.read_text(encoding="utf-8"))),
        "help": sentences(helps()),
        "messages": sentences(messages()),
    }
    print("part      sentences  mean  over 30  semicolons/100  bare decimals  private words")
    for name, found in parts.items():
        words = [len(s.split()) for s in found]
        long = sum(n > LONG for n in words) / len(found)
        semicolons = 100 * sum(s.count(";") for s in found) / len(found)
        bare, private = (sum(len(p.findall(s)) for s in found) for p in (BARE, PRIVATE))
        mean = sum(words) / len(words)
        print(
            f"{name:<9} {len(found):>9}  {mean:>4.1f}  {long:>6.1%}  {semicolons:>14.1f}  "
            f"{bare:>13}  {private:>13}"
        )
    print("\nthe longest sentences:")
    everything = [(len(s.split()), name, s) for name, found in parts.items() for s in found]
    for number, name, text in sorted(everything, reverse=True)[:10]:
        print(f"{number} {name}: {text[:300]}")


if __name__ == "__main__":
    main()
