"""Which files hold text, by the endings of their names."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from .streams import compression_of

Format = Literal["txt", "md", "jsonl", "csv", "tsv", "parquet", "fasta", "smi", "pydocs", "hub"]
FORMATS: dict[str, Format] = {
    ".txt": "txt",
    ".text": "txt",
    ".md": "md",
    ".markdown": "md",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".fasta": "fasta",
    ".fa": "fasta",
    ".faa": "fasta",
    ".fna": "fasta",
    ".ffn": "fasta",
    ".smi": "smi",
    ".smiles": "smi",
}
FASTA = frozenset(ending for ending, kind in FORMATS.items() if kind == "fasta")
SMILES = frozenset(ending for ending, kind in FORMATS.items() if kind == "smi")
SOURCE_CODE = frozenset(
    {".py", ".pyi", ".c", ".h", ".cc", ".cpp", ".hpp", ".cu", ".cs", ".java", ".kt", ".scala"}
    | {".go", ".rs", ".swift", ".js", ".jsx", ".ts", ".tsx", ".rb", ".php", ".pl", ".lua", ".r"}
    | {".jl", ".hs", ".ml", ".sh", ".sql"}
)
LOGS = frozenset({".log"})
# A folder of texts may hold such files beside its corpus, so there they count only if the user says
# what a document is in them.
IN_FOLDERS: dict[str, frozenset[str]] = {"file": SOURCE_CODE, "line": LOGS}
"""by document_boundary: further endings of text in a folder"""


def format_of(path: Path, further: frozenset[str] = frozenset()) -> Format | None:
    """The format by the name, ignoring a suffix of compression; None if we do not support it.
    further: endings of plain text beside FORMATS."""
    ending = _ending(path)
    kind = "txt" if ending in further else FORMATS.get(ending)
    return None if kind == "parquet" and compression_of(path) else kind


def is_json(path: Path) -> bool:
    """Whether a file may hold JSON lines, but by its ending may as well be one object over many
    lines."""
    return _ending(path) == ".json"


def _ending(path: Path) -> str:
    """The ending of a name, without that of compression."""
    return (path.with_suffix("") if compression_of(path) else path).suffix.lower()
