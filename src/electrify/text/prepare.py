"""`electrify prepare`: documents x tokenizer -> shards. It runs in parallel and in bounded memory,
and gives the same bytes however often it is stopped and continued.

The main process reads, hashes, drops duplicates and hands out tasks of a few MB of text, in the
order of the input; workers (processes of this host or of a Ray cluster) tokenise them, and their
results are written into part files. A part is identified by a hash of its documents and of the
options, so a later run reads the input again (cheap), finds the existing parts (the expensive work)
and makes only the others. The last step joins the parts into shards and writes the manifest.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..console import harmless
from ..cores import cores
from ..errors import UserError
from ..files import write
from ..progress import Progress, say
from . import cluster, documents, sample
from .dedup import Seen, digest, is_held_out, until
from .encode import WITHOUT_TOKENS, Start, Task
from .glimpse import advice
from .manifest import Manifest, token_dtype
from .merging import join
from .options import PrepareConfig
from .part_files import read_part, write_part
from .pool import Workers
from .sources import Source, choose_sources, shown
from .streams import has_checksum
from .summary import LOG
from .tokenizer import load_tokenizer, special_ids, tokenizer_sha256, vocabulary_size
from .unknown import must_know
from .workspace import Workspace, finished

TASK_CHARACTERS = 1 << 22
TASK_DOCUMENTS = 1 << 15


def prepare(options: PrepareConfig) -> Manifest:
    """Writes the prepared corpus to options.output_dir and returns its manifest; a finished folder
    of the same command is verified and left as it is.

    Raises UserError for input, options or an output folder that cannot work. A KeyboardInterrupt
    passes through, and the same command continues later.
    """
    if options.engine == "ray":
        cluster.require()
    clock = Clock()
    sources = choose_sources(options)
    for idle in options.unused({s.format for s in sources}):
        say(idle)
    _tell_of_archives(sources)
    done = finished(options, sources)
    if done is not None:
        say(
            f"{options.output_dir} is already prepared by the same command: verified, nothing to do"
        )
        return done
    if told := advice(sources, options):
        say(told)
    try:
        with (
            Workspace(options, sources) as space,
            cluster.joined(options.workers) if options.engine == "ray" else nullcontext(),
        ):
            return _prepare(options, space, clock)
    except OSError as e:
        if e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise UserError(
                f"{options.output_dir}: {e.strerror}; make room and run the same command again, it "
                "continues"
            ) from e
        raise


def _tell_of_archives(sources: list[Source]) -> None:
    """Reports the archives in which damage could go unnoticed."""
    bare = [s for s in sources if s.path.name and not has_checksum(s.path)]
    if bare:
        say(
            f"{shown(bare)}: packed without checksum, so a changed bit may pass for "
            "text; pack with `xz -C crc64` or `zstd --check`"
        )


def _prepare(options: PrepareConfig, space: Workspace, clock: Clock) -> Manifest:
    space.collect(workers=options.workers or cores())
    clock.ends("collect")
    sample.tokenizer_for(options, space)
    tokenizer = load_tokenizer(space.tokenizer)
    special = special_ids(tokenizer)
    vocab_size = vocabulary_size(tokenizer)
    clock.ends("tokenizer")
    plan = Plan(options, space, vocab_size=vocab_size, special=special)
    counts, parts = plan.encode()
    clock.ends("encode")
    manifest = join(
        space,
        parts,
        counts=counts,
        vocab_size=vocab_size,
        special=special,
        shard_bytes=options.shard_mb << 20,
        dtype=plan.dtype,
    )
    clock.ends("join")
    log = {
        "seconds": clock.seconds,
        "cpu_seconds": clock.cpu,
        "parts": len(parts),
        "parts_reused": plan.reused,
        "workers": plan.workers,
    }
    log["engine"] = options.engine
    write(space.folder / LOG, json.dumps(log, indent=1) + "\n")
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


@dataclass(frozen=True)
class Part:
    """A finished part file, to be read again with this key."""

    path: Path
    key: str


class Plan:
    """The encoding pass: which documents go into which task, and the results."""

    def __init__(
        self, options: PrepareConfig, space: Workspace, *, vocab_size: int, special: Any
    ) -> None:
        self.options = options
        self.space = space
        self.workers = 0
        self.dtype = str(token_dtype(vocab_size).str)
        self.reused = 0
        self.counts: Counter[str] = Counter()
        self._start = Start(
            tokenizer=(space.tokenizer / "tokenizer.json").read_text(encoding="utf-8"),
            vocab_size=vocab_size,
            unk=special.unk,
            forbidden=special.never_chosen,
            dtype=self.dtype,
        )
        # What affects the bytes of a part, its counts included, besides its documents.
        salt = [tokenizer_sha256(space.tokenizer), self.dtype, options.valid_fraction]
        self._salt = json.dumps(salt).encode()
        self._train = 0  # documents
        self._parts: list[Part] = []
        self._making: deque[Part] = deque()
        self._reading = ""

    def encode(self) -> tuple[Counter[str], list[Part]]:
        """Encodes every document. Returns the parts and the counts. Raises UserError if there is no
        document."""
        total = sum(s.size for s in self.space.sources) / 1e6
        with Progress(total or None, title="tokenising", unit="MB") as bar, self._pool() as pool:
            self.workers = pool.count
            for encoded in pool.map(self._tasks(bar)):
                write_part(self._making.popleft().path, encoded.part)
                self.counts.update(encoded.counts)
        if not self.counts["documents"]:
            raise UserError(f"the corpus is empty: no text in {shown(self.space.sources)}")
        if not self._train:
            raise UserError(f"the corpus is empty: {sample.ALL_VALID}")
        if self.counts["tokens"] == self.counts["unk_tokens"]:
            names = shown(self.space.sources)
            raise UserError(
                f"every token of {names} is unknown to the tokenizer; choose another one, or train "
                "one with more text or vocab_size"
            )
        self._must_have_tokens()
        must_know(self.counts, self.options, where=shown(self.space.sources))
        return self.counts, self._parts

    def _must_have_tokens(self) -> None:
        """Says how many documents gave no token; raises UserError if most of them gave none."""
        lost = self.counts[WITHOUT_TOKENS]
        total = self.counts["documents"]
        names = shown(self.space.sources)
        fact = f"{lost:,} of {total:,} documents of {names} give no token"
        if 2 * lost > total:
            raise UserError(
                f"{fact}: the tokenizer drops what it does not know; choose one with an [UNK] "
                "token that was made for such text, or train one here"
            )
        if lost:
            say(f"{fact}: the tokenizer drops what it does not know; nothing is learnt from them")

    def _pool(self) -> Workers | cluster.Cluster:
        """The pool of workers that tokenise: `map(tasks)` gives the results in the order of the
        tasks, with a bounded number of them in flight."""
        workers = self.options.workers
        module = "electrify.text.encode"
        if self.options.engine == "ray":
            return cluster.Cluster(workers, module=module, argument=self._start)
        return Workers(workers or cores(), module=module, argument=self._start)

    def _tasks(self, bar: Progress) -> Iterator[Task]:
        """The tasks whose part does not exist yet."""
        for block in self._blocks(bar):
            texts = [text for _, text in block]
            valid = [is_held_out(h, self.options.valid_fraction) for h, _ in block]
            self._train += valid.count(False)
            key = hashlib.sha256(self._salt + b"".join(h for h, _ in block)).hexdigest()
            part = Part(self.space.part(len(self._parts)), key)
            self._parts.append(part)
            found = read_part(part.path, key=key, dtype=self.dtype)
            if found is not None:
                self.reused += 1
                self.counts.update(found[0]["counts"])
                continue
            self._making.append(part)
            yield Task(
                key=key,
                texts=texts,
                valid=valid,
                about=f"{len(texts)} documents, the last of {self._reading}",
            )

    def _blocks(self, bar: Progress) -> Iterator[list[tuple[bytes, str]]]:
        """(hash, text) of the documents that are kept, in lists of one task each."""
        seen = Seen()
        pairs = self._hashed(lambda n: bar.advance(n / 1e6, note=self._reading))
        if self.options.max_documents is not None:
            pairs = until(pairs, self.options.max_documents, distinct=self.options.deduplicate)
        for block in _gathered(pairs):
            if self.options.deduplicate:
                new = seen.add([h for h, _ in block])
                self.counts["duplicates"] += len(block) - sum(new)
                block = [pair for pair, keep in zip(block, new, strict=True) if keep]
            if block:
                yield block

    def _hashed(self, advance: Callable[[int], None]) -> Iterator[tuple[bytes, str]]:
        for source in self.space.sources:
            self._reading = harmless(source.name)
            for text in documents.documents(
                source, self.options, counts=self.counts, advance=advance
            ):
                yield digest(text.encode()), text


def _gathered(pairs: Iterator[tuple[bytes, str]]) -> Iterator[list[tuple[bytes, str]]]:
    block: list[tuple[bytes, str]] = []
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
