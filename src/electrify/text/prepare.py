"""`electrify prepare`: documents x tokenizer -> shards. It runs in parallel and in bounded memory,
and gives the same bytes however often it is stopped and continued.

The main process reads, hashes, drops duplicates and hands out tasks of a few MB of text, in the
order of the input; workers (processes of this host or of a Ray cluster) tokenise them, and their
results are written into part files. A part is identified by a hash of its documents and of the
options, so a later run reads the input again (cheap), finds the existing parts (the expensive work)
and makes only the others. The last step joins the parts into shards and writes the manifest.

    DATA/unfinished/
        state.json             the options and the inputs (with hashes) of the command: the folder
                               is ours; it goes after the manifest was written
        pydocs.jsonl           the embedded corpus, where it is one of the inputs: parsed once,
                               read twice
        parts/                 finished tasks, by their number
    DATA/tokenizer/            made first, as a whole
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..console import harmless
from ..errors import UserError, need
from ..files import claim, json_text, read_json, sha256, write, written
from ..process import cores
from ..progress import Progress, say
from . import pydocs
from .corpus import (
    MANIFEST,
    STATE,
    TOKENIZER,
    UNFINISHED,
    CorpusWriter,
    Manifest,
    read_manifest,
    token_dtype,
    verify,
    write_manifest,
)
from .dedup import Pair, Sample, Seen, digest, fraction, gathered, is_held_out, until
from .documents import documents
from .encode import WITHOUT_TOKENS, Start, Task, read_part, start, write_part
from .options import PrepareConfig
from .report import COUNTED, LOG, beginnings, keeping_accents, look, must_know, must_know_sample
from .sources import Source, choose_sources, shown
from .tokenizer import (
    load_tokenizer,
    save_existing,
    save_trained,
    special_ids,
    tokenizer_files,
    vocabulary_size,
)
from .vocabulary import Splitting, train
from .workers import ordered, require, workers

TASK_CHARACTERS = 1 << 22
TASK_DOCUMENTS = 1 << 15
TOKENIZER_CONTENT = "tokenizer_content"
"""The hash of a tokenizer that was given: many folders are called `tokenizer`."""
NO_MATTER = ("inputs", "output_dir", "workers", "engine", "allow_unk", "preset")
"""Options that do not affect the bytes of the result, or that are not as they were given in another
place."""
ANOTHER = "choose another folder or remove it"
STEPS = ("collect", "tokenizer", "encode", "join")


def prepare(options: PrepareConfig) -> Manifest:
    """Writes the prepared corpus to options.output_dir and returns its manifest; a finished folder
    of the same command is verified and left as it is.

    Raises UserError for input, options or an output folder that cannot work. A KeyboardInterrupt
    passes through, and the same command continues later.
    """
    if options.engine == "ray":
        require()
    times = [time.perf_counter()]
    folder = Path(options.output_dir)
    sources = choose_sources(options)
    texts = beginnings(sources, options) if options.trains_tokenizer else []
    options = keeping_accents(texts, options)
    state = {"options": bytes_deciding(options), "sources": [s.identity() for s in sources]}
    if (done := finished(folder, state)) is not None:
        say(f"{folder} is already prepared by the same command: verified, nothing to do")
        return done
    if advice := look(texts, options, {s.format for s in sources}):
        say(advice)
    with claim(folder, STATE):
        begin(folder, state)
        try:
            manifest = _made(options, sources, state, times)
        except UserError:
            # A mistake of the user was found before any text was tokenised, so there is nothing to
            # continue, and the next command may have other options.
            if not any(folder.glob(f"{UNFINISHED}/parts/*/*.part")):
                _clear(folder)
            raise
        shutil.rmtree(folder / UNFINISHED)
        return manifest


def _made(
    options: PrepareConfig, sources: list[Source], state: dict[str, Any], times: list[float]
) -> Manifest:
    """times: when the work began; receives the ends of its steps."""
    sources = collected(options, sources)
    times.append(time.perf_counter())
    tokenizer_for(options, sources)
    times.append(time.perf_counter())
    encoding = Encoding(options, sources)
    encoding.run()
    times.append(time.perf_counter())
    manifest = join(options, state, encoding)
    times.append(time.perf_counter())
    seconds = {step: b - a for step, (a, b) in zip(STEPS, pairwise(times), strict=True)}
    log = {
        "seconds": {**seconds, "total": times[-1] - times[0]},
        "parts": len(encoding.parts),
        "parts_reused": encoding.reused,
        "engine": options.engine,
    }
    write(Path(options.output_dir) / LOG, json.dumps(log, indent=1) + "\n")
    return manifest


# ------------------------------------------------------------------ the folder


def bytes_deciding(options: PrepareConfig) -> dict[str, Any]:
    """The options that affect the bytes of the result, without absolute paths."""
    found = {k: v for k, v in asdict(options).items() if k not in NO_MATTER}
    found["strip_accents"] = options.accents_stripped
    # A kind of tokenizer that is trained is not the folder that happens to have its name.
    if not options.trains_tokenizer and Path(options.tokenizer).is_dir():
        found["tokenizer"] = Path(options.tokenizer).resolve().name
        content = hashlib.sha256()
        for path in tokenizer_files(Path(options.tokenizer)):
            content.update(f"{path.name} {sha256(path)}\n".encode())
        found[TOKENIZER_CONTENT] = content.hexdigest()
    return found


def finished(folder: Path, state: dict[str, Any]) -> Manifest | None:
    """The verified manifest of a corpus that the same command has finished; None if there is no
    corpus yet. Raises UserError if another command has made it, or from other text."""
    if not (folder / MANIFEST).exists():
        return None
    manifest = read_manifest(folder)
    changed = _changed(folder, vars(manifest), state)
    need(not changed, f"{folder} holds another corpus: other contents of {changed}", ANOTHER)
    verify(folder)
    shutil.rmtree(folder / UNFINISHED, ignore_errors=True)  # of a command killed at its end
    return manifest


def begin(folder: Path, state: dict[str, Any]) -> None:
    """Begins, or finds that the same command has begun here. Raises UserError if another one
    has."""
    if (folder / STATE).is_file():
        changed = _changed(folder, read_json(folder / STATE), state)
        if not changed:
            say(f"continuing in {folder}")
            return
        # Somebody has mended the file that stopped the command.
        say(f"{changed} changed since this folder was begun: reading all input anew")
        _clear(folder)
    with written(folder / UNFINISHED) as part:
        part.mkdir()
        (part / "state.json").write_text(json_text(state, indent=1), encoding="utf-8")


def _changed(folder: Path, had: dict[str, Any], now: dict[str, Any]) -> str:
    """The name of the first input whose content differs; empty if none does. Raises UserError if
    an option or the name of an input does."""
    fact, old, new = f"{folder} holds another corpus", had["options"], now["options"]
    for name in sorted(old.keys() | new.keys()):
        was, wanted = old.get(name), new.get(name)
        need(was == wanted, f"{fact}: its {name} is {was!r}, now {wanted!r}", ANOTHER)
    same = [row["name"] for row in had["sources"]] == [row["name"] for row in now["sources"]]
    need(same, f"{fact}: it was made from other inputs", ANOTHER)
    pairs = zip(had["sources"], now["sources"], strict=True)
    return next((b["name"] for a, b in pairs if a != b), "")


def _clear(folder: Path) -> None:
    """Removes what was begun, the mark last."""
    for path in (folder / TOKENIZER, folder / UNFINISHED / "parts", folder / UNFINISHED):
        shutil.rmtree(path, ignore_errors=True)


def collected(options: PrepareConfig, sources: list[Source]) -> list[Source]:
    """The sources, with the embedded corpus in a file that is read in its place."""
    path = Path(options.output_dir) / UNFINISHED / "pydocs.jsonl"
    if any(s.format == "pydocs" for s in sources) and not path.is_file():
        pydocs.write(path, key=options.text_column, workers=options.workers or cores())
    return [replace(s, format="jsonl", path=path) if s.format == "pydocs" else s for s in sources]


# ------------------------------------------------------------------ the tokenizer


def tokenizer_for(options: PrepareConfig, sources: list[Source]) -> None:
    """Puts the tokenizer into its folder, unless an earlier run of the same command did. Raises
    UserError if there is nothing to train on."""
    folder = Path(options.output_dir) / TOKENIZER
    if folder.is_dir():
        return
    if not options.trains_tokenizer:
        save_existing(options.tokenizer, folder)
        return
    texts = sampled(options, sources)
    size, kind = sum(map(len, texts)) / 1e6, options.tokenizer
    say(f"training a {kind} vocabulary on {size:,.1f} MB of text in {len(texts)} documents")
    how = {"kind": kind, "lowercase": options.lowercase, "strip_accents": options.accents_stripped}
    tokenizer = train(
        texts,
        vocab_size=options.vocab_size,
        min_frequency=options.min_frequency,
        splitting=Splitting(options.pre_tokenizer, options.chunk_length),
        **how,
    )
    must_know_sample(tokenizer, texts, options)
    if (found := tokenizer.get_vocab_size()) < options.vocab_size:
        say(f"the vocabulary has {found} pieces, not {options.vocab_size}: there are no more")
    save_trained(tokenizer, folder, **how)


def sampled(options: PrepareConfig, sources: list[Source]) -> list[str]:
    """At most tokenizer_sample_mb of text outside the validation split: the documents with the
    smallest numbers, in their order. A document that the corpus would drop because it occurred
    before counts as one."""
    kept = Sample(options.tokenizer_sample_mb * 1_000_000)
    with reading(sources, "reading for the vocabulary") as bar:
        # The counts for the report come from the encoding pass.
        for number, text in hashed(options, sources, Counter(), bar):
            if not is_held_out(number, options.valid_fraction):
                kept.add(fraction(number, stream=1), text)
    texts = kept.texts()
    must_have_text(bool(texts), sources)
    return texts


def must_have_text(found: bool, sources: list[Source]) -> None:
    """Raises UserError if nothing was found outside of the validation split."""
    fact = f"the corpus is empty: no text in {shown(sources)} outside of the validation split"
    need(found, fact, "give more text, or a lower valid_fraction")


def reading(sources: list[Source], title: str) -> Progress:
    total = sum(s.size for s in sources) / 1e6
    return Progress(total or None, title=title, unit="MB")


def hashed(
    options: PrepareConfig, sources: list[Source], counts: Counter[str], bar: Progress
) -> Iterator[Pair]:
    """The documents of the sources, duplicates included, up to max_documents."""

    def every() -> Iterator[Pair]:
        for source in sources:
            advance = partial(_advance, bar, harmless(source.name))
            for text in documents(source, options, counts=counts, advance=advance):
                yield digest(text.encode()), text

    return until(every(), options.max_documents, distinct=options.deduplicate)


def _advance(bar: Progress, name: str, n: int) -> None:
    bar.advance(n / 1e6, note=name)


# ------------------------------------------------------------------ encoding


class Encoding:
    """The pass over all documents: which go into which task, and the results."""

    def __init__(self, options: PrepareConfig, sources: list[Source]) -> None:
        folder = Path(options.output_dir)
        file = folder / TOKENIZER / "tokenizer.json"
        tokenizer = load_tokenizer(file.parent)
        self.options = options
        self.sources = sources
        self.vocab_size = vocabulary_size(tokenizer)
        self.special = special_ids(tokenizer)
        self.counts: Counter[str] = Counter()
        self.parts: list[tuple[Path, str]] = []
        """The files, and the keys with which they are read again."""
        self.reused = 0
        self._folder = folder / UNFINISHED / "parts"
        dtype = token_dtype(self.vocab_size).str
        self._start = Start(file.read_text(encoding="utf-8"), self.special.unk, dtype)
        # What affects the bytes of a part, its counts included, besides its documents.
        self._salt = json.dumps([sha256(file), dtype, options.valid_fraction]).encode()
        self._making: deque[tuple[Path, str]] = deque()

    def run(self) -> None:
        """Makes the parts that do not exist."""
        engine, count = self.options.engine, self.options.workers
        with (
            reading(self.sources, "tokenising") as bar,
            workers(engine, count, start, self._start) as pool,
        ):
            for part in ordered(pool, self._tasks(bar)):
                path, key = self._making.popleft()
                write_part(path, part, key=key)

    def _tasks(self, bar: Progress) -> Iterator[Task]:
        """The tasks whose part does not exist yet."""
        for block in self._blocks(bar):
            valid = [is_held_out(h, self.options.valid_fraction) for h, _ in block]
            key = hashlib.sha256(self._salt + b"".join(h for h, _ in block)).hexdigest()
            number = len(self.parts)  # a thousand in each folder
            path = self._folder / f"{number // 1000:05d}" / f"{number:08d}.part"
            self.parts.append((path, key))
            if read_part(path, key=key) is not None:
                self.reused += 1
                continue
            self._making.append((path, key))
            yield Task([text for _, text in block], valid)

    def _blocks(self, bar: Progress) -> Iterator[list[Pair]]:
        """The documents that are kept, in lists of one task each."""
        seen = Seen()
        pairs = hashed(self.options, self.sources, self.counts, bar)
        for block in gathered(pairs, lambda pair: len(pair[1]), TASK_CHARACTERS, TASK_DOCUMENTS):
            if self.options.deduplicate:
                new = seen.add([h for h, _ in block])
                self.counts["duplicates"] += len(block) - sum(new)
                block = [pair for pair, keep in zip(block, new, strict=True) if keep]
            if block:
                yield block


# ------------------------------------------------------------------ joining


def join(options: PrepareConfig, state: dict[str, Any], encoding: Encoding) -> Manifest:
    """Writes the parts into shards, then the counts of ids, and the manifest last: it is what makes
    a folder a prepared corpus."""
    folder, counts = Path(options.output_dir), encoding.counts
    writer = CorpusWriter(folder, encoding.vocab_size, shard_mb=options.shard_mb)
    with Progress(len(encoding.parts), title="joining", unit="parts") as bar:
        for path, key in encoding.parts:
            found = read_part(path, key=key)
            if found is None:
                raise UserError(f"{path} was changed. Run the same command again")
            counts.update(found[0])
            writer.add(found[1])
            bar.advance()
    files = writer.close()
    names, number = shown(encoding.sources), counts["documents"]
    must_have_text(bool(files["splits"]["train"]), encoding.sources)
    if lost := counts[WITHOUT_TOKENS]:
        fact = f"{lost:,} of {number:,} documents of {names} give no token: the tokenizer drops "
        fact += "what it does not know"
        advice = "choose one with an [UNK] token that was made for such text, or train one here"
        need(2 * lost <= number, fact, advice)
        say(f"{fact}; nothing is learnt from them")
    must_know(counts, options, where=names)
    tokenizer = {p.name: sha256(p) for p in sorted((folder / TOKENIZER).iterdir())}
    manifest = Manifest(
        **files,
        **state,
        special_ids=encoding.special,
        tokenizer_sha256=tokenizer["tokenizer.json"],
        tokenizer_files=tokenizer,
        counts={name: counts[name] for name in COUNTED},
    )
    write_manifest(folder, manifest)
    return manifest
