"""Two hosts (network namespaces joined by a cable of their own), one of which is lost and comes
back."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from breaking import SHORT

from small import Process, logged_step, pretrain_words, same_ending, torchrun

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
LONGER = SHORT | {"max_steps": 300, "save_steps": 10, "eval_steps": 0}


def ip(*words: str, check: bool = True) -> bool:
    return subprocess.run(["ip", *words], check=check, capture_output=True).returncode == 0


@dataclass(frozen=True)
class Host:
    """A network namespace with an address. All hosts see the same files, as a cluster with shared
    storage does."""

    name: str
    address: str
    cable: str

    def torchrun(self, words: list[str], errors: Path, *, first: str) -> Process:
        """The agent of this host. first: address of the host where the agents meet."""
        # torchrun does not know the addresses of a namespace
        meets = f"--rdzv-conf is_host={str(self.address == first).lower()}"
        flags = (
            f"--nnodes 2 --nproc-per-node 1 --max-restarts 3 --rdzv-backend c10d {meets} "
            f"--rdzv-endpoint {first}:29511 --rdzv-id two-hosts --local-addr {self.address}"
        )
        enter = ["ip", "netns", "exec", self.name]
        start = f"os.execvp('ip', [*{enter}, sys.executable, *sys.argv[1:]])"
        prefix = ("-c", f"import os, sys; {start}")
        run = ["-m", "torch.distributed.run", *flags.split(), "-m", "electrify"]
        cable = {"GLOO_SOCKET_IFNAME": self.cable, "TP_SOCKET_IFNAME": self.cable}
        # Without it torchrun waits for ever for an agent that comes back: it looks for the address
        # of the store where nobody writes it again.
        return Process(
            [*run, *words],
            errors,
            prefix=prefix,
            variables=cable | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        )

    def power_off(self) -> int:
        """Every process of the host at once. Returns how many there were."""
        found = subprocess.run(
            ["ip", "netns", "pids", self.name], capture_output=True, text=True, check=True
        ).stdout.split()
        for pid in found:
            os.kill(int(pid), signal.SIGKILL)
        return len(found)


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    one, other = (
        Host(f"electrify-{os.getpid()}-{k}", f"10.231.7.{k}", f"el{os.getpid() % 100000}-{k}")
        for k in (1, 2)
    )
    if os.geteuid() or not ip("netns", "add", one.name, check=False):
        pytest.skip("network namespaces need root and the program ip")
    with ExitStack() as undo:
        undo.callback(ip, "netns", "delete", one.name, check=False)
        ip("netns", "add", other.name)
        undo.callback(ip, "netns", "delete", other.name, check=False)
        veth = f"{one.cable} netns {one.name} type veth peer name {other.cable} netns {other.name}"
        ip("link", "add", *veth.split())
        for host in (one, other):
            ip("-n", host.name, "link", "set", "lo", "up")
            ip("-n", host.name, "address", "add", f"{host.address}/24", "dev", host.cable)
            ip("-n", host.name, "link", "set", host.cable, "up")
        yield one, other


def test_a_host_is_lost_and_returns(
    small_data: Path, hosts: tuple[Host, Host], tmp_path: Path
) -> None:
    """The first host's agent waits for it; with both back the run goes on by itself to the bytes of
    two undisturbed processes."""
    whole, run = tmp_path / "whole", tmp_path / "run"
    done = torchrun(pretrain_words(small_data, whole, **LONGER), tmp_path).end()
    assert done.status == 0, done.err
    one, other = hosts
    words = [*pretrain_words(small_data, run, **LONGER), "--ddp-timeout", "60"]
    with ExitStack() as ends:
        first = ends.enter_context(one.torchrun(words, tmp_path / "first.txt", first=one.address))
        second = ends.enter_context(
            other.torchrun(words, tmp_path / "second.txt", first=one.address)
        )
        assert first.wait_for(lambda: logged_step(run) >= 60), first.end().err
        assert other.power_off() >= 2, "an agent and its worker"
        assert second.end().status == -signal.SIGKILL
        step = logged_step(run)
        assert step < 300
        time.sleep(10)
        assert first.popen.poll() is None, "it waits"
        assert logged_step(run) <= step + 3, "alone it does not go on"
        returned = ends.enter_context(
            other.torchrun(words, tmp_path / "returned.txt", first=one.address)
        )
        ended = returned.end(), first.end()
    assert [d.status for d in ended] == [0, 0], "\n".join(d.err for d in ended)
    assert "continuing after step" in ended[0].err + ended[1].err
    same_ending(whole, run, step=300)
