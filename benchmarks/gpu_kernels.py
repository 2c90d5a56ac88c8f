"""Kernel launches and bytes of one update as torch's compiler writes it for CUDA, without a GPU.

    OMP_NUM_THREADS=1 python benchmarks/gpu_kernels.py SIZE ROWSxLENGTH [--layers N] [--dropout P]
        [--code FOLDER] [--json FILE]

Runs the update of `electrify pretrain --torch-compile` with CUDA tensors that have no data, on a
pretended H100. The compiler writes its code, which nothing compiles or runs. Needs g++ and triton
(`pip install --no-deps triton`). Two layers take a minute, twelve take ten.

Launches are the calls in that code. Outside of it (`rest`) each operator counts as one launch, also
one that works on a list of tensors. Bytes are those of the buffers that a kernel reads or writes,
each counted once, and as a whole even if the kernel reads single entries of it. From the fourth
update on all of these are one CUDA graph. `host` is what the host then starts: copies of the batch
and of the learning rates, the graph, the sums for the log.

On a GPU three things are decided by timing or by the hardware. Here they are fixed: attention with
a mask uses the memory-efficient kernel, matrix products are not padded, nothing is autotuned.
"""

from __future__ import annotations

from fake_cuda import H100  # isort: skip  before torch

import argparse
import json
import re
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import sides
import torch
import torch.nn.functional as F
from pairs import table, write_json
from torch import Tensor, nn
from torch._dynamo.device_interface import CudaInterface
from torch._inductor import config as inductor
from torch._inductor import output_code
from torch._inductor.graph import GraphLowering
from torch._inductor.ir import NonOwningLayout
from torch._inductor.memory import prepare_planning_info
from torch._inductor.scheduler import (
    BaseSchedulerNode,
    ForeachKernelSchedulerNode,
    FusedMixOrderReductions,
)
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _foreach_utils, _triton
from torch.utils._ordered_set import OrderedSet
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from electrify.model import relative
from electrify.objectives.objective import Objective
from electrify.recipe import Recipe
from electrify.train import loop
from electrify.train.graphs import WARM, on_device

LAUNCH = re.compile(
    r"^ +(?:\w+ = )?(?:triton_\w+\.run|(?:extern_kernels|torch\.ops|aten)\.[\w.]+)\(", re.MULTILINE
)
# The sum over what the blocks of a kernel have added up in float32: another launch.
PARTIAL = re.compile(r"workspace_\w+\[.*\.view\((\d+), (\d+)\)\.sum\(")
FAKE = FakeTensorMode(allow_non_fake_inputs=True)
LIBRARY = torch.library.Library("aten", "IMPL", "Meta")


@dataclass(frozen=True)
class Case(sides.Case):
    """layers: of the discriminator and the generator, if not those of the recipe."""

    layers: int | None = None

    @property
    def bf16(self) -> bool:
        return True

    def config(self, **fields: Any) -> Recipe:
        layers = {"num_hidden_layers": self.layers} if self.layers else {}
        return super().config(**layers, **fields)


@dataclass
class Work:
    """What a part of an update does on the device."""

    launches: int = 0
    bytes: int = 0
    peak: int = 0
    """Memory, of compiled code: without the parameters, with what the other pass needs."""


class Outside(TorchDispatchMode):
    """Counts the operators on the device that run outside the compiled code. captured: whether a
    CUDA graph is made of them, so nothing may come from the host."""

    def __init__(self, *, captured: bool = False) -> None:
        super().__init__()
        self.captured = captured
        self.work = Work()

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Compiled code is not run under other modes."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        if func.is_view or name.startswith("empty") or name in ("_unsafe_view", "device"):
            return out
        read = tensors_on_device((args, kwargs))
        here = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor) and t.is_cpu]
        assert not (self.captured and any(t.ndim for t in here)), f"{func} reads the host's memory"
        made = [t for t in tensors_on_device(out) if all(t is not r for r in read)]
        arguments = func._schema.arguments
        given = dict(zip((a.name for a in arguments), args, strict=False)) | kwargs
        changed = tensors_on_device([given.get(a.name) for a in arguments if a.is_write])
        self.work.launches += bool(read or made)
        self.work.bytes += sum(t.nbytes for t in (*read, *made, *changed))
        return out


def tensors_on_device(tree: Any) -> list[Tensor]:
    """The CUDA tensors in nested arguments."""
    return [t for t in tree_leaves(tree) if isinstance(t, Tensor) and t.device.type == "cuda"]


def pretend() -> None:
    """Makes torch and its compiler find one H100, and write code without compiling it."""
    facts = {"get_device_properties": lambda *_: H100, "current_device": lambda: 0}
    able = {"is_bf16_supported": lambda **_: True}
    replace(torch.cuda, get_device_capability=lambda *_: (H100.major, H100.minor), **facts, **able)
    replace(torch.cuda.amp.common, amp_definitely_not_available=lambda: False)
    replace(CudaInterface, is_available=lambda: True, **facts, **able)
    replace(CudaInterface, exchange_device=lambda i: i, maybe_exchange_device=lambda i: i)
    replace(CudaInterface.Worker, **facts)
    replace(Tensor, pin_memory=lambda self: self)
    replace(F, scaled_dot_product_attention=memory_efficient)
    replace(_foreach_utils, _foreach_supported_types=[Tensor, FakeTensor])
    replace(_triton, triton_hash_with_backend=lambda: "")
    # Folding would compute constants, and the last one would capture a CUDA graph.
    replace(inductor, compile_threads=1, force_disable_caches=True, shape_padding=False)
    replace(inductor, joint_graph_constant_folding=False)
    replace(output_code, cudagraph_partition_post_compile=lambda *_: None)
    # For Adam with the learning rate as a tensor, torch 2.13 has no kernel without data.
    LIBRARY.impl("_fused_adamw_.tensor_lr", lambda *_, **__: None)
    replace(loop, place=place)
    replace(relative, scale_of=lambda width: (relative.TERMS * width) ** -0.5)  # of a real tensor
    replace(sides, Run=WithoutData)


def replace(owner: Any, **members: Any) -> None:
    for name, value in members.items():
        setattr(owner, name, value)


def memory_efficient(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor, dropout_p: float, scale: float | None
) -> Tensor:
    """The kernel that torch chooses on a GPU for attention with a mask."""
    bias = attn_mask.expand(*q.shape[:-1], k.shape[-2])
    attention = torch.ops.aten._scaled_dot_product_efficient_attention
    return attention(q, k, v, bias, True, dropout_p, scale=scale)[0]


def place(objective: Objective, config: Any, world: Any) -> Objective:
    """Replaces parameters and buffers by tensors without data. `Module.to` cannot."""
    for module in objective.modules():
        for name, p in module.named_parameters(recurse=False):
            setattr(module, name, nn.Parameter(torch.empty_like(p, device=world.device)))
        for name, t in module.named_buffers(recurse=False):
            setattr(module, name, torch.empty_like(t, device=world.device))
    return objective


class WithoutData(loop.Run):
    """A run on CUDA tensors that have no data."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        with FAKE:
            super().__init__(*args, **kwargs)


def count(case: Case, folder: Path | None) -> dict[str, Work]:
    """The work of the forward pass, of the backward pass, of the rest of the update's CUDA graph,
    and of the host.

    folder: where the generated code is written, as forward.py and backward.py, and what each of its
    kernels does, as forward.txt and backward.txt.
    """
    work = {"forward": Work(), "backward": Work()}

    def write(graph: GraphLowering) -> Any:
        """Stands in for the compilation of a graph. Its code returns tensors without data."""
        code = graph.codegen()[0].value
        part = "backward" if graph.is_backward else "forward"
        partial = [4 * int(rows) * int(width) for rows, width in PARTIAL.findall(code)]
        work[part].launches += len(LAUNCH.findall(code)) + len(partial)
        kernels = []
        for node in graph.scheduler.nodes:
            if isinstance(node, FusedMixOrderReductions):
                # Such a gradient would be lost (pytorch issue 193061, seen in the code of 2.13).
                layouts = [output.node.get_layout() for output in node.get_outputs()]
                assert not any(isinstance(layout, NonOwningLayout) for layout in layouts)
            # Parts of a combined kernel do not share what they read.
            parts = node.snodes if isinstance(node, ForeachKernelSchedulerNode) else [node]
            work[part].bytes += sum(n.get_read_write_buffers_sizes() for n in parts)
            kernels += [f"{n.get_read_write_buffers_sizes() / 1e6:9.3f} {origin(n)}" for n in parts]
        work[part].bytes += 2 * sum(partial)  # written and read
        scheduler, names = graph.scheduler, OrderedSet(graph.get_output_names())
        work[part].peak, _ = prepare_planning_info(
            scheduler.nodes,
            scheduler.name_to_buf,
            scheduler.name_to_fused_node,
            OrderedSet(graph.graph_inputs),
            names,
        )
        if folder is not None:
            (folder / f"{part}.py").write_text(code, encoding="utf-8")
            (folder / f"{part}.txt").write_text("\n".join(kernels) + "\n", encoding="utf-8")
        outputs: list[Any] = [
            (o.get_size(), o.get_stride(), o.get_dtype()) if o.has_tensor_output() else None
            for o in graph.graph_outputs
        ]

        def call(inputs: list[Any]) -> list[Tensor | None]:
            return [
                o and torch.empty_strided(*o[:2], dtype=o[2], device=case.device) for o in outputs
            ]

        return SimpleNamespace(call=call, __file__=__file__)

    replace(GraphLowering, compile_to_module=write)
    with tempfile.TemporaryDirectory() as data:
        run = sides.Ours(case, Path(data), compiled=True).run
        batch = run.batch(0)
        assert run.graphs
        with FAKE:
            run.update(batch)  # compiles
            parts = on_device(batch, case.device)
            with Outside(captured=True) as rest:
                done = run.compute(parts)
            replace(run.graphs, record=lambda _: lambda: done)
            for _ in range(WARM):
                run.update(batch)
            with Outside() as host:
                run.update(batch)
    assert run.graphs.captured
    host.work.launches += 1
    return work | {"rest": rest.work, "host": host.work}


def origin(kernel: BaseSchedulerNode) -> str:
    """The operators that a kernel computes, and what it writes."""
    nodes = [n.node for n in kernel.get_nodes() if n.node is not None]
    names = {str(o.target).removesuffix(".default") for node in nodes for o in node.get_origins()}
    made = [o.node for n in kernel.get_nodes() for o in n.get_outputs()]
    sizes = [f"{b.get_dtype()}{[*b.get_size()]}" for b in made if b.has_tensor_output()]
    return f"{' '.join(sorted(names))} -> {' '.join(sizes)}"


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("size", help="tiny, small, ..., modernbert-small, ..., or a recipe")
    p.add_argument("batch", metavar="ROWSxLENGTH")
    p.add_argument("--layers", type=int, help="of the discriminator and the generator")
    p.add_argument("--vocab-size", type=int, default=30_522)
    p.add_argument("--dropout", type=float, default=0.1)
    p.add_argument("--code", type=Path, metavar="FOLDER", help="write code and kernels there")
    p.add_argument("--json", help="write the figures here too")
    a = p.parse_args()
    rows, length = map(int, a.batch.split("x"))
    device = torch.device("cuda", 0)
    case = Case(a.size, rows, length, a.vocab_size, a.dropout, device, layers=a.layers)
    pretend()
    work = count(case, a.code)
    cells = [
        [part, f"{w.launches:,}", f"{w.bytes / 1e9:.2f}", f"{w.peak / 1e9:.2f}"]
        for part, w in work.items()
    ]
    layers = case.config().model.num_hidden_layers
    print(
        table([f"{case.name}, {layers} layers", "launches", "GB moved", "GB at its peak"], cells)
        + "\n"
    )
    found = {"case": case.name, "layers": layers, "torch": torch.__version__}
    found |= {part: asdict(w) for part, w in work.items()}
    print(json.dumps(found))
    write_json(a.json, found)


if __name__ == "__main__":
    main()
