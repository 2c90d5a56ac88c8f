"""Rewrites of the graphs that torch's compiler makes for a GPU. They save passes over memory.

Shape suffixes: T flat tokens, C chunks of K tokens, N outputs of a linear layer.
"""

from __future__ import annotations

from operator import getitem

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch.fx import Graph, Node

aten = torch.ops.aten
SUM, CAT, VIEW, MM = aten.sum.dim_IntList, aten.cat.default, aten.reshape.default, aten.mm.default
CAST = torch.ops.prims.convert_element_type.default
# Products, and what attention returns: results of kernels that the compiler does not write.
GIVEN = (MM, aten.addmm.default, aten.bmm.default, getitem)
CHUNK = 128
"""Tokens that one block of a kernel adds up."""


class Rewrites(CustomGraphPass):
    """For linear layers under autocast to bfloat16."""

    def __call__(self, graph: Graph) -> None:
        for sum_1N in graph.find_nodes(op="call_function", target=SUM):
            of_TN, dims, *keepdim = sum_1N.args
            value = of_TN.meta["val"]
            # The gradient of a bias. All other sums of a backward pass are of float32.
            bias = (dims, keepdim, value.dtype) == ([0], [True], torch.bfloat16)
            if bias and value.shape[0] % CHUNK == 0 and by_elements(of_TN):
                sum_in_chunks(graph, of_TN, sum_1N)
        for cast in graph.find_nodes(op="call_function", target=CAST):
            product, dtype = cast.args
            last = product.target == MM and all(n.op == "output" for n in cast.users)
            if last and dtype == torch.float32 and len(product.users) == 1:
                write_float32(graph, product, cast)

    def uuid(self) -> bytes:
        """Names this version of the code in the compiler's caches."""
        return get_hash_for_files((__file__,))


def by_elements(node: Node) -> bool:
    """Whether the compiler writes a kernel for it that computes each element by itself. With a sum
    in between, as in the gradient of a norm, it writes another kind of kernel."""
    while node.target in (VIEW, aten.view.default):
        (node,) = node.all_input_nodes
    if node.target != CAT and torch.Tag.pointwise not in getattr(node.target, "tags", ()):
        return False
    behind = [node]
    for one in behind:  # which grows
        if one.target == SUM:
            return False
        if one.target not in GIVEN:
            behind += [n for n in one.all_input_nodes if n not in behind]
    return True


def sum_in_chunks(graph: Graph, of_TN: Node, sum_1N: Node) -> None:
    """Has the kernel that computes the summands add them up: it computes them in the loops of their
    sum, and all others read that result. By itself the compiler reads the summands again, because
    it sums in chunks of tokens and does not see that the kernel before could have these loops."""
    tokens, width = of_TN.meta["val"].shape
    with graph.inserting_after(of_TN):
        cut_CKN = graph.call_function(VIEW, (of_TN, [tokens // CHUNK, CHUNK, width]))
    with graph.inserting_after(cut_CKN):
        own_CKN = graph.call_function(aten.clone.default, (cut_CKN,))
    with graph.inserting_after(own_CKN):
        own_TN = graph.call_function(VIEW, (own_CKN, [tokens, width]))
    of_TN.replace_all_uses_with(own_TN, delete_user_cb=lambda user: user is not cut_CKN)
    with graph.inserting_before(sum_1N):
        sum_CN = graph.call_function(SUM, (own_CKN, [1]), {"dtype": torch.float32})
    sum_1N.args = (sum_CN, [0], True)


def write_float32(graph: Graph, product: Node, cast: Node) -> None:
    """Has the product write the gradient of a weight in float32, without rounding it before."""
    with graph.inserting_before(cast):
        wide = graph.call_function(aten.mm.dtype, (*product.args, torch.float32))
    cast.replace_all_uses_with(wide)
    graph.erase_node(cast)
    graph.erase_node(product)
