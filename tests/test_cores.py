"""The environment of OpenMP, as libgomp itself says that it read it; and the numbers that --threads
takes."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from electrify.cores import OWN_CHOICES, SPINS

ASKED = {"OMP_DISPLAY_ENV": "verbose"}  # every libgomp that loads says what it was told
DEFAULT, ACTIVE = "300000", "30000000000"
GNU = pytest.mark.skipif(
    not sys.platform.startswith("linux"),
    reason="the OpenMP of other systems says it in other words",
)


def spins(*words: str, **variables: str) -> list[str]:
    """What each libgomp of a fresh `python WORDS` is told to spin."""
    clean = {k: v for k, v in os.environ.items() if k not in OWN_CHOICES}
    ran = subprocess.run(
        [sys.executable, *words],
        env=clean | ASKED | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return re.findall(r"GOMP_SPINCOUNT = '(\d+)'", ran.stderr)


@pytest.mark.slow
@GNU
def test_the_command_line_tells_libgomp_before_it_loads() -> None:
    assert spins("-m", "electrify", "flops", "electra-tiny") == [SPINS]


@GNU
@pytest.mark.slow
def test_a_choice_of_the_user_stays() -> None:
    for variables, told in (
        ({"OMP_WAIT_POLICY": "active"}, ACTIVE),
        ({"GOMP_SPINCOUNT": "77"}, "77"),
        ({"KMP_BLOCKTIME": "5"}, DEFAULT),
    ):
        assert spins("-m", "electrify", "flops", "electra-tiny", **variables) == [told]
