"""Files of text and the documents in them."""

from collections import Counter
from pathlib import Path
from typing import Any

from electrify.text import documents
from electrify.text.options import PrepareConfig
from electrify.text.sources import Source, format_of


def read(path: Path, **options: Any) -> tuple[list[str], Counter[str]]:
    """The documents of a file with these options of `prepare`, and what was counted on the way."""
    counts: Counter[str] = Counter()
    kind = format_of(path)
    assert kind is not None
    config = PrepareConfig(inputs=(str(path),), output_dir="unused", **options)
    found = list(documents.documents(Source(path.name, kind, path), config, counts=counts))
    return found, +counts


def write(folder: Path, name: str, data: bytes | str) -> Path:
    """Text may hold lone surrogates: they become the bytes that stand for them."""
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass"))
    return path
