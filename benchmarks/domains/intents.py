"""Sentences to a voice assistant, and what they ask for.

    python benchmarks/domains/intents.py --package home_assistant_intents-*.whl \\
        --corpus ENGLISH.txt --output-dir DATA

The package holds templates of sentences for each intent, such as `turn [on] {name}`. Of an intent
with several templates a quarter is held out; of the others, other sentences than those of training
are. Names of rooms, devices and things to buy are not in the package: short lists of them stand
below, half of each for training and the other half for the held-out sentences. train.jsonl and
heldout.jsonl: the keys text and intent. corpus.txt: the paragraphs of the English text (.txt or
.txt.xz) in which no held-out sentence stands.
"""

from __future__ import annotations

import argparse
import functools
import json
import lzma
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grammar import parse, sample
from labelled import Example, HeldOut, balanced, share_of, shares, write_lines, write_table
from packages import member

DATA = "home_assistant_intents/data/en.json"
HELD_OUT_SHARE = 0.25
TRIES = 400  # sentences that are drawn from the templates of an intent

# What users call their own things.
OWN = {
    "area": "kitchen|bedroom|garage|office|hallway|attic|bathroom|living room|basement|nursery|"
    "dining room|guest room|porch|laundry room|study|garden|pantry|closet|balcony|music room",
    "floor": "ground|first|second|upper|lower|top|third|main",
    "name": "coffee machine|bedside lamp|front door|sprinkler|ceiling fan|old radio|desk light|"
    "heater|fish tank|christmas tree|air purifier|projector|big screen|kettle|floor lamp|"
    "water valve|night light|side gate",
    "name of weather": "london|berlin|new york|the coast|madrid|the cabin|oslo|the mountains",
    "name of vacuum": "roomba|dusty|robot|sir sucks|hoover|the cleaner",
    "name of lawn_mower": "mower|green robot|garden mower|lawn robot|trimmer|backyard mower",
    "name of todo": "chores|work|weekend|errands|garden|family|holiday|packing",
    "name of person": "anna|david|grandma|my brother|peter|maria",
    "name of scene": "movie night|relax|good morning|party|reading|dinner time",
    "name of script": "bedtime|leaving home|wake up|vacation|alarm|guests",
    "message": "dinner is ready|we leave in five minutes|the bus is here|please come down|"
    "your laundry is done|good night everyone|i am home|someone is at the door",
    "search_query": "the beatles|morning jazz|a love supreme|the daily news|queen|rock classics|"
    "moon river|star trek|bach|lullabies|yellow submarine|the office",
    "zone": "work|school|the gym|home|the airport|grandmas place",
    "timer_name": "pizza|egg|laundry|tea|homework|bread|nap|workout|cookies|rice",
    "timer_command": "open the garage door|turn off the heater|lock the front door|"
    "start the robot|close the blinds|play the news",
    "shopping_list_item": "milk|two lemons|bread|olive oil|dish soap|eggs|brown rice|batteries|"
    "apples|cat food|paper towels|cheese",
    "todo_list_item": "call mom|water the plants|pay the rent|fix the bike|book a flight|"
    "clean the oven|write to anna|return the books",
}


@dataclass(frozen=True)
class Template:
    text: str
    domain: str
    """what `{name}` is the name of, if that is known: light, weather, ..."""


def value(lists: dict[str, Any], domain: str, side: int, name: str, rng: random.Random) -> str:
    """Text for a slot, a template itself. side: 0 draws from one half of our own lists, 1 from the
    other."""
    if f"{name} of {domain}" in OWN:
        name = f"{name} of {domain}"
    if name in OWN:
        return rng.choice(OWN[name].split("|")[side::2])
    row = lists[name]
    if "range" in row:
        return str(rng.randrange(row["range"]["from"], row["range"]["to"] + 1))
    return rng.choice([one if isinstance(one, str) else one["in"] for one in row["values"]])


def sentences(
    templates: list[Template], content: dict[str, Any], side: int, rng: random.Random
) -> list[str]:
    """Different sentences of these templates, each template as often as the others."""
    nodes = [(parse(one.text), one.domain) for one in templates]
    drawn = []
    for _ in range(TRIES):
        node, domain = rng.choice(nodes)
        of_slot = functools.partial(value, content["lists"], domain, side)
        drawn.append(sample(node, rng, rules=content["expansion_rules"], value=of_slot))
    return list(dict.fromkeys(one for one in drawn if one))


def templates_of(about: dict[str, Any]) -> list[Template]:
    found = set()
    for block in about["data"]:
        domain = block.get("requires_context", {}).get("domain", "")
        only = domain[0] if isinstance(domain, list) and len(domain) == 1 else domain
        known = only if isinstance(only, str) else ""
        found |= {Template(one, known) for one in block["sentences"]}
    return sorted(found, key=lambda one: (one.text, one.domain))


def examples(content: dict[str, Any], seed: int) -> tuple[list[Example], list[Example]]:
    """All sentences for training and the held-out ones; a sentence of two intents is left out."""
    rng = random.Random(seed)
    sides: tuple[list[Example], list[Example]] = ([], [])
    for intent, about in sorted(content["intents"].items()):
        all_of_it = templates_of(about)
        all_of_it.sort(key=lambda template: share_of(template.text, seed))
        apart = round(HELD_OUT_SHARE * len(all_of_it))
        for side, templates in enumerate((all_of_it[apart:], all_of_it[:apart] or all_of_it)):
            found = sentences(templates, content, side, rng)
            sides[side].extend(Example(one, intent.removeprefix("Hass")) for one in found)
    intents: dict[str, set[str]] = defaultdict(set)
    for one in (*sides[0], *sides[1]):
        intents[one.text].add(one.label)
    train = [one for one in sides[0] if len(intents[one.text]) == 1]
    known = {one.text for one in sides[0]}
    alone = (one for one in sides[1] if len(intents[one.text]) == 1)
    return train, [one for one in alone if one.text not in known]


def english(path: Path, held_out: HeldOut) -> Iterator[str]:
    """The lines of a text in which no held-out sentence stands; the empty ones between documents
    stay."""
    with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open() as f:
        for line in f:
            if not held_out.occurs_in(line.lower()):
                yield line.rstrip("\n")


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--package", type=Path, nargs="+", required=True, help="home-assistant-intents")
    p.add_argument("--corpus", type=Path, required=True, help="English text, .txt or .txt.xz")
    p.add_argument("--output-dir", type=Path, required=True)
    p.add_argument("--train-examples", type=int, default=1500)
    p.add_argument("--heldout-examples", type=int, default=1000)
    p.add_argument("--seed", type=int, default=0)
    a = p.parse_args()
    train, held_out = examples(json.loads(member(a.package, DATA)), a.seed)
    rng = random.Random(a.seed)
    train = balanced(train, a.train_examples, rng)
    held_out = balanced(held_out, a.heldout_examples, rng)
    a.output_dir.mkdir(parents=True, exist_ok=True)
    seen = HeldOut(one.text.lower() for one in held_out)
    count = write_lines(a.output_dir / "corpus.txt", english(a.corpus, seen))
    print(f"corpus: {count} lines")
    for name, side in (("train", train), ("heldout", held_out)):
        write_table(a.output_dir / f"{name}.jsonl", ("text", "intent"), side)
        print(shares(name, side))


if __name__ == "__main__":
    main()
