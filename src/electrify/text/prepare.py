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

import errno
import hashlib
import json
import os
import shutil
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from ..console import harmless
from ..cores import cores
from ..errors import OutputError, UserError, need
from ..files import claim, is_ours, json_text, read_json, sha256, write, written
from ..progress import Progress, say
from ..special import SpecialIds
from . import pydocs
from .corpus import (
    MANIFEST,
    SPLITS,
    STATE,
    TOKENIZER,
    UNFINISHED,
    UNIGRAM,
    Dtype,
    Manifest,
    ShardWriter,
    Split,
    put_array,
    read_manifest,
    token_dtype,
    verify,
    write_manifest,
)
from .dedup import Pair, Sample, Seen, digest, fraction, is_held_out, until
from .documents import EMPTY_ROWS, documents
from .encode import (
    UNK_CHARACTERS,
    UNK_DOCUMENTS,
    VISIBLE,
    WITHOUT_TOKENS,
    Start,
    Task,
    read_part,
    start,
    write_part,
)
from .options import PrepareConfig
from .report import LOG, keeping_accents, look, must_know, must_know_sample
from .sources import Source, choose_sources, shown
from .streams import has_checksum
from .tokenizer import (
    load_tokenizer,
    save_existing,
    save_trained,
    special_ids,
    tokenizer_files,
    tokenizer_sha256,
    vocabulary_size,
)
from .vocabulary import Splitting, train
from .workers import ordered, require, workers

TASK_CHARACTERS = 1 << 22
TASK_DOCUMENTS = 1 << 15
COUNTED = (
    "documents",
    "words",
    "characters",
    VISIBLE,
    "bytes",
    "tokens",
    "unk_tokens",
    UNK_CHARACTERS,
    UNK_DOCUMENTS,
    "duplicates",
    "blank",
    EMPTY_ROWS,
    "encoding_errors",
    "nul_characters",
    "cuts",
    WITHOUT_TOKENS,
)
TOKENIZER_CONTENT = "tokenizer_content"
"""The hash of a tokenizer that was given: many folders are called `tokenizer`."""
NO_MATTER = ("inputs", "output_dir", "workers", "engine", "allow_unk")
"""Options that do not affect the bytes of the result, or that are not as they were given in another
place."""
ALL_VALID = "all of its documents fell into the validation split. Lower valid_fraction"


def prepare(options: PrepareConfig) -> Manifest:
    """Writes the prepared corpus to options.output_dir and returns its manifest; a finished folder
    of the same command is verified and left as it is.

    Raises UserError for input, options or an output folder that cannot work. A KeyboardInterrupt
    passes through, and the same command continues later.
    """
    if options.engine == "ray":
        require()
    clock = Clock()
    folder = Path(options.output_dir)
    sources = choose_sources(options)
    options = keeping_accents(sources, options)
    for idle in options.unused({s.format for s in sources}):
        say(idle)
    if bare := [s for s in sources if s.path.name and not has_checksum(s.path)]:
        say(
            f"{shown(bare)}: packed without checksum, so a changed bit may pass for "
            "text. Pack with `xz -C crc64` or `zstd --check`"
        )
    if (done := finished(options, sources)) is not None:
        say(f"{folder} is already prepared by the same command: verified, nothing to do")
        return done
    for line in look(sources, options):
        say(line)
    inside = folder / UNFINISHED
    try:
        with claim(folder, STATE):
            identities = begin(options, sources)
            try:
                manifest = _made(options, sources, identities, clock)
            except UserError:
                # A mistake of the user was found before any text was tokenised, so there is nothing
                # to continue, and the next command may have other options.
                if not any(inside.glob("parts/*/*.part")):
                    _clear(folder)
                raise
            shutil.rmtree(inside)
            return manifest
    except OSError as e:
        if e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise UserError(
                f"{folder}: {e.strerror}. Make room and run the same command again, it continues"
            ) from e
        raise


def _made(
    options: PrepareConfig, sources: list[Source], identities: list[dict[str, Any]], clock: Clock
) -> Manifest:
    folder = Path(options.output_dir)
    sources = collected(options, sources)
    clock.ends("collect")
    tokenizer_for(options, sources)
    tokenizer = load_tokenizer(folder / TOKENIZER)
    special, vocab_size = special_ids(tokenizer), vocabulary_size(tokenizer)
    clock.ends("tokenizer")
    encoding = Encoding(options, sources, vocab_size, special)
    encoding.run()
    clock.ends("encode")
    manifest = join(options, identities, encoding, special)
    clock.ends("join")
    log = {
        "seconds": clock.seconds,
        "cpu_seconds": clock.cpu,
        "parts": len(encoding.parts),
        "parts_reused": encoding.reused,
        "engine": options.engine,
    }
    write(folder / LOG, json.dumps(log, indent=1) + "\n")
    return manifest


class Clock:
    """Wall-clock seconds, and processor seconds of this process and of the finished workers, for
    each step and in total."""

    def __init__(self) -> None:
        self._last = self._first = self._now()
        self.seconds: dict[str, float] = {}
        self.cpu: dict[str, float] = {}

    def _now(self) -> tuple[float, float]:
        return time.perf_counter(), sum(os.times()[:4])

    def ends(self, step: str) -> None:
        now = self._now()
        for table, i in ((self.seconds, 0), (self.cpu, 1)):
            table[step] = now[i] - self._last[i]
            table["total"] = now[i] - self._first[i]
        self._last = now


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


def finished(options: PrepareConfig, sources: list[Source]) -> Manifest | None:
    """The verified manifest of a corpus that the same command has finished; None if there is no
    corpus yet. Raises OutputError if the folder holds something else."""
    folder = Path(options.output_dir)
    if not (folder / MANIFEST).exists():
        if folder.is_file():
            raise OutputError(f"{folder} is a file", "name a folder for the corpus")
        if not is_ours(folder, STATE):
            names = ", ".join(sorted(p.name for p in folder.glob("[!.]*"))[:3])
            raise OutputError(f"{folder} holds other files ({names})", "choose a new folder")
        return None
    manifest = read_manifest(folder)
    identities = [s.identity() for s in sources]
    _must_be_same(folder, manifest.options, manifest.sources, options, identities)
    if changed := _changed(manifest.sources, identities):
        raise _another(folder, f"it was made from other contents of {changed}")
    verify(folder)
    if (folder / STATE).is_file():  # of a command killed at its end
        shutil.rmtree(folder / UNFINISHED)
    return manifest


def begin(options: PrepareConfig, sources: list[Source]) -> list[dict[str, Any]]:
    """Begins, or finds that the same command has begun here. Returns the identities of the
    sources. Raises UserError if another command has begun."""
    folder = Path(options.output_dir)
    identities = [s.identity() for s in sources]
    if (folder / STATE).is_file():
        had = read_json(folder / STATE)
        _must_be_same(folder, had["options"], had["sources"], options, identities)
        changed = _changed(had["sources"], identities)
        if not changed:
            say(f"continuing in {folder}")
            return identities
        # Somebody has mended the file that stopped the command.
        say(f"{changed} changed since this folder was begun: reading all input anew")
        _clear(folder)
    with written(folder / UNFINISHED) as part:
        part.mkdir()
        state = {"options": bytes_deciding(options), "sources": identities}
        (part / "state.json").write_text(json_text(state, indent=1), encoding="utf-8")
    return identities


def _must_be_same(
    folder: Path,
    had: dict[str, Any],
    had_sources: list[dict[str, Any]],
    options: PrepareConfig,
    sources: list[dict[str, Any]],
) -> None:
    """Raises OutputError if another command differs in its options or the names of its inputs."""
    now = bytes_deciding(options)
    for name in sorted(now.keys() | had.keys()):
        if had.get(name) != now.get(name):
            if name == TOKENIZER_CONTENT:
                raise _another(folder, "it was made with another tokenizer of that name")
            raise _another(folder, f"its {name} is {had.get(name)!r}, now {now.get(name)!r}")
    if [row["name"] for row in had_sources] != [row["name"] for row in sources]:
        raise _another(folder, "it was made from other inputs")


def _another(folder: Path, odd: str) -> OutputError:
    return OutputError(
        f"{folder} holds another corpus: {odd}", "choose another folder or remove it"
    )


def _changed(had: list[dict[str, Any]], now: list[dict[str, Any]]) -> str:
    """The name of the first input whose content differs; empty if none does."""
    return next((b["name"] for a, b in zip(had, now, strict=True) if a != b), "")


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
    save_trained(
        _trained(options, sampled(options, sources)),
        folder,
        kind=options.tokenizer,
        lowercase=options.lowercase,
        strip_accents=options.accents_stripped,
    )


def _trained(options: PrepareConfig, texts: list[str]) -> Any:
    """Trains a tokenizer on the texts. Reports if they give fewer pieces than were asked for."""
    if options.tokenizer == "byte":
        say("the vocabulary is the 256 bytes")
    else:
        size = sum(map(len, texts)) / 1e6
        say(
            f"training a {options.tokenizer} vocabulary of {options.vocab_size} on {size:,.1f} MB "
            f"of text in {len(texts)} documents"
        )
    tokenizer = train(
        texts,
        kind=options.tokenizer,
        vocab_size=options.vocab_size,
        lowercase=options.lowercase,
        strip_accents=options.accents_stripped,
        min_frequency=options.min_frequency,
        splitting=Splitting(options.pre_tokenizer, options.chunk_length),
    )
    must_know_sample(tokenizer, texts, options)
    found = tokenizer.get_vocab_size()
    if found < options.vocab_size and options.tokenizer != "byte":
        often = f" that occur at least {options.min_frequency} times (min_frequency)"
        say(
            f"the vocabulary has {found} pieces, not {options.vocab_size}: this text gives no "
            f"more{often if options.tokenizer != 'unigram' else ''}"
        )
    return tokenizer


def sampled(options: PrepareConfig, sources: list[Source]) -> list[str]:
    """At most tokenizer_sample_mb of text outside the validation split: the documents with the
    smallest numbers, in their order. A document that the corpus would drop because it occurred
    before counts as one."""
    kept = Sample(options.tokenizer_sample_mb * 1_000_000)
    read = 0
    total = sum(s.size for s in sources) / 1e6
    with Progress(total or None, title="reading for the vocabulary", unit="MB") as bar:
        counts: Counter[str] = Counter()  # the counts for the report come from the encoding pass
        pairs = hashed(options, sources, counts, lambda n, _: bar.advance(n / 1e6))
        for number, text in pairs:
            read += 1
            if not is_held_out(number, options.valid_fraction):
                kept.add(fraction(number, stream=1), text)
    texts = kept.texts()
    if not texts:
        why = ALL_VALID if read else f"no text in {shown(sources)}"
        raise UserError(f"the corpus is empty: {why}")
    return texts


def hashed(
    options: PrepareConfig,
    sources: list[Source],
    counts: Counter[str],
    advance: Callable[[int, str], None],
) -> Iterator[Pair]:
    """The documents of the sources, duplicates included, up to max_documents. advance: called with
    the number of bytes that were read, and the name of their source."""

    def every() -> Iterator[Pair]:
        for source in sources:
            name = harmless(source.name)
            for text in documents(
                source, options, counts=counts, advance=lambda n, name=name: advance(n, name)
            ):
                yield digest(text.encode()), text

    return until(every(), options.max_documents, distinct=options.deduplicate)


# ------------------------------------------------------------------ encoding


class Part(NamedTuple):
    """A finished part file, to be read again with this key."""

    path: Path
    key: str


class Encoding:
    """The pass over all documents: which go into which task, and the results."""

    def __init__(
        self,
        options: PrepareConfig,
        sources: list[Source],
        vocab_size: int,
        special: SpecialIds,
    ) -> None:
        self.options = options
        self.sources = sources
        self.dtype = str(token_dtype(vocab_size).str)
        self.counts: Counter[str] = Counter()
        self.parts: list[Part] = []
        self.reused = 0
        folder = Path(options.output_dir)
        self._parts_folder = folder / UNFINISHED / "parts"
        self._start = Start(
            tokenizer=(folder / TOKENIZER / "tokenizer.json").read_text(encoding="utf-8"),
            vocab_size=vocab_size,
            unk=special.unk,
            forbidden=special.never_chosen,
            dtype=self.dtype,
        )
        # What affects the bytes of a part, its counts included, besides its documents.
        salt = [tokenizer_sha256(folder / TOKENIZER), self.dtype, options.valid_fraction]
        self._salt = json.dumps(salt).encode()
        self._train = 0  # documents
        self._making: deque[Part] = deque()

    def run(self) -> None:
        """Makes the parts that do not exist. Raises UserError if there is no document, or none that
        the tokenizer can read."""
        total = sum(s.size for s in self.sources) / 1e6
        engine, count = self.options.engine, self.options.workers
        with (
            Progress(total or None, title="tokenising", unit="MB") as bar,
            workers(engine, count, start, self._start) as pool,
        ):
            for encoded in ordered(pool, self._tasks(bar)):
                write_part(self._making.popleft().path, encoded.part)
                self.counts.update(encoded.counts)
        self._must_be_usable()

    def _must_be_usable(self) -> None:
        names = shown(self.sources)
        counts, lost = self.counts, self.counts[WITHOUT_TOKENS]
        need(counts["documents"] > 0, f"the corpus is empty: no text in {names}")
        need(self._train > 0, f"the corpus is empty: {ALL_VALID}")
        need(
            counts["tokens"] > counts["unk_tokens"],
            f"every token of {names} is unknown to the tokenizer",
            "choose another one, or train one with more text or vocab_size",
        )
        fact = f"{lost:,} of {counts['documents']:,} documents of {names} give no token"
        need(
            2 * lost <= counts["documents"],
            f"{fact}: the tokenizer drops what it does not know",
            "choose one with an [UNK] token that was made for such text, or train one here",
        )
        if lost:
            say(f"{fact}: the tokenizer drops what it does not know; nothing is learnt from them")
        must_know(counts, self.options, where=names)

    def _tasks(self, bar: Progress) -> Iterator[Task]:
        """The tasks whose part does not exist yet."""
        for block in self._blocks(bar):
            valid = [is_held_out(h, self.options.valid_fraction) for h, _ in block]
            self._train += valid.count(False)
            key = hashlib.sha256(self._salt + b"".join(h for h, _ in block)).hexdigest()
            number = len(self.parts)  # a thousand in each folder
            path = self._parts_folder / f"{number // 1000:05d}" / f"{number:08d}.part"
            self.parts.append(Part(path, key))
            found = read_part(path, key=key, dtype=self.dtype)
            if found is not None:
                self.reused += 1
                self.counts.update(found[0]["counts"])
                continue
            self._making.append(self.parts[-1])
            yield Task(key=key, texts=[text for _, text in block], valid=valid)

    def _blocks(self, bar: Progress) -> Iterator[list[Pair]]:
        """The documents that are kept, in lists of one task each."""
        seen = Seen()
        pairs = hashed(
            self.options, self.sources, self.counts, lambda n, name: bar.advance(n / 1e6, note=name)
        )
        for block in gathered(pairs):
            if self.options.deduplicate:
                new = seen.add([h for h, _ in block])
                self.counts["duplicates"] += len(block) - sum(new)
                block = [pair for pair, keep in zip(block, new, strict=True) if keep]
            if block:
                yield block


def gathered(pairs: Iterator[Pair]) -> Iterator[list[Pair]]:
    block: list[Pair] = []
    size = 0
    for pair in pairs:
        block.append(pair)
        size += len(pair[1])
        if size >= TASK_CHARACTERS or len(block) >= TASK_DOCUMENTS:
            yield block
            block = []
            size = 0
    if block:
        yield block


# ------------------------------------------------------------------ joining


def join(
    options: PrepareConfig,
    identities: list[dict[str, Any]],
    encoding: Encoding,
    special: SpecialIds,
) -> Manifest:
    """Writes the parts into shards, then the counts of ids, and the manifest last: it is what makes
    a folder a prepared corpus."""
    folder = Path(options.output_dir)
    vocab_size = encoding._start.vocab_size
    dtype = np.dtype(encoding.dtype)
    unigram_V = np.zeros(vocab_size, np.int64)
    writers: dict[Split, ShardWriter] = {
        split: ShardWriter(folder, split, dtype=dtype, shard_bytes=options.shard_mb << 20)
        for split in SPLITS
    }
    with Progress(len(encoding.parts), title="joining", unit="parts") as bar:
        for part in encoding.parts:
            found = read_part(part.path, key=part.key, dtype=encoding.dtype)
            if found is None:
                raise UserError(f"{part.path} was changed. Run the same command again")
            for split, writer in writers.items():
                writer.add(*found[1][split])
            unigram_V += np.bincount(found[1]["train"][1], minlength=vocab_size)
            bar.advance()
    tokenizer = folder / TOKENIZER
    manifest = Manifest(
        format=1,
        dtype=cast(Dtype, dtype.name),
        vocab_size=vocab_size,
        special_ids=special,
        tokenizer_sha256=tokenizer_sha256(tokenizer),
        unigram_sha256=put_array(folder / UNIGRAM, unigram_V),
        splits={split: writer.close() for split, writer in writers.items()},
        options=bytes_deciding(options),
        sources=identities,
        counts={name: encoding.counts[name] for name in COUNTED},
        tokenizer_files={p.name: sha256(p) for p in sorted(tokenizer.iterdir())},
    )
    train, valid = ({s.tokens_sha256 for s in manifest.splits[split]} for split in SPLITS)
    need(
        not train & valid,
        f"{folder} would have the same tokens in train and in valid: texts that differ only in "
        "what the tokenizer does not see are the same there",
        "give more text, or another --valid-fraction",
    )
    write_manifest(folder, manifest)
    return manifest
