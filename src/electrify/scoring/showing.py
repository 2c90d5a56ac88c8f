"""`electrify detect`: the tokens or words of a text with their probabilities, as coloured text, as
lines, or as JSON."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import Any, BinaryIO, TextIO

from ..console import harmless
from .detect import Detection, Piece, detect
from .given import given_text
from .options import DetectConfig


def main(
    options: DetectConfig, *, stdin: BinaryIO | None = None, stdout: TextIO | None = None
) -> int:
    """`electrify detect`: find the text, detect, show. Raises UserError for an empty, binary or
    badly encoded text."""
    found = detect(
        options.model,
        [given_text(options, stdin)],
        max_seq_length=options.max_seq_length,
        batch_size=options.batch_size,
        threads=options.threads,
    )
    for detection in found:
        show(
            detection,
            stdout or sys.stdout,
            threshold=options.threshold,
            unit=options.unit,
            as_json=options.json,
        )
    return 0


def show(detection: Detection, out: TextIO, *, threshold: float, unit: str, as_json: bool) -> None:
    """Coloured text on a terminal (not with NO_COLOR), otherwise a line `token<TAB>probability` for
    each, with `<TAB>*` after those that reach the threshold."""
    if as_json:
        # Escaped throughout, so that no character of the text can control a terminal.
        marks = {"threshold": threshold, "marked": _marked(detection, threshold)}
        out.write(json.dumps(asdict(detection) | marks) + "\n")
    elif out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        _show_coloured(detection, out, threshold=threshold, unit=unit)
    else:
        for piece in _pieces(detection, unit):
            mark = "\t*" if piece.probability >= threshold else ""
            line = f"{harmless(piece.token)}\t{piece.probability:.4f}{mark}\n"
            encoding = getattr(out, "encoding", None) or "utf-8"
            out.write(line.encode(encoding, "backslashreplace").decode(encoding))
    out.flush()


def _pieces(detection: Detection, unit: str) -> tuple[Piece, ...]:
    return detection.words if unit == "word" else detection.tokens


def _marked(detection: Detection, threshold: float) -> list[dict[str, Any]]:
    return [asdict(word) for word in detection.words if word.probability >= threshold]


def _show_coloured(detection: Detection, out: TextIO, *, threshold: float, unit: str) -> None:
    from rich.console import Console
    from rich.text import Text

    shown = Text()
    at = 0
    for piece in sorted(_pieces(detection, unit), key=lambda p: p.start):
        if piece.end <= at:
            continue
        shown.append(harmless(detection.text[at : max(at, piece.start)], keep="\n\t"))
        shown.append(
            harmless(detection.text[max(at, piece.start) : piece.end], keep="\n\t"),
            style=_style(piece.probability, threshold),
        )
        at = piece.end
    shown.append(harmless(detection.text[at:].rstrip(), keep="\n\t"))
    console = Console(file=out, highlight=False, markup=False, emoji=False)
    console.print(shown, soft_wrap=True)
    marked = [p for p in _pieces(detection, unit) if p.probability >= threshold]
    legend = ", ".join(f"{harmless(p.token)} {p.probability:.2f}" for p in marked[:20]) + (
        f" and {len(marked) - 20} more" if len(marked) > 20 else ""
    )
    console.print(
        Text(
            f"replaced with probability of at least {threshold:g}: {legend or 'nothing'}",
            style="dim",
        ),
        soft_wrap=True,
    )


def _style(probability: float, threshold: float) -> str:
    """From no background at 0 to red at 1; bold and underlined from the threshold."""
    if probability < 0.05 and probability < threshold:
        return ""
    fade = round(255 * (1 - probability))
    strong = "bold underline " if probability >= threshold else ""
    return f"{strong}black on rgb(255,{fade},{fade})"
