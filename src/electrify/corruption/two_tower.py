"""The cloze model of Electric: predicts every token from all the others, in one forward pass.

Shape suffixes: T flat tokens, M chosen positions, V vocabulary, D width of a tower.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ..draws import Draws
from ..model.costs import Pass
from ..model.encoder import Encoder
from ..model.heads import CHUNK, Network, log_probability
from ..terms import Loss, Terms, term
from ..tokens import Tokens
from .choosing import Chooser, Plan
from .corruptor import Corrupted, Source, is_best, substitute
from .sampling import Sampling


@dataclass(frozen=True, kw_only=True)
class Cloze(Corrupted):
    """Corrupted text, with what a cloze model knows in addition."""

    log_q_T: Tensor
    """log q of the ORIGINAL at every position given the other tokens, with gradient."""


class TwoTower(nn.Module):
    """One encoder that looks left and one that looks right, their states shifted by one and side by
    side under one LM head: position i is predicted without ever being seen (Electric, 2012.08561
    section 2.3; Baevski et al. 2019). It learns from every token and draws at the chosen positions.
    """

    def __init__(
        self,
        chooser: Chooser,
        left: Encoder,
        right: Encoder,
        head: nn.Module,
        *,
        sampling: Sampling,
    ) -> None:
        super().__init__()
        assert (left.direction, right.direction) == ("left", "right")
        self.chooser = chooser
        self.left = left
        self.right = right
        self.head = head
        self.sampling = sampling

    @classmethod
    def build(cls, source: Source) -> TwoTower:
        networks = source.networks
        left = networks.encoder(direction="left")
        right = networks.encoder(direction="right")
        head = networks.lm_head(encoders=2)
        return cls(source.chooser, left, right, head, sampling=source.sampling)

    def networks(self) -> dict[str, Network]:
        """None: the library has no class for it."""
        return {}

    def passes(self) -> list[Pass]:
        """The head runs a second time, without gradient, where it draws."""
        own = [
            Pass(self.left, 1.0, True),
            Pass(self.right, 1.0, True),
            Pass(self.head, 1.0, True, again_above=CHUNK),
        ]
        return [*own, Pass(self.head, self.chooser.share, False)]

    def context(self, tokens: Tokens) -> Tensor:
        """[T, 2 D]: the states to the left and to the right of each token; 0 if there is none."""
        left_TD = self.left(tokens)
        right_TD = self.right(tokens)
        first_T = tokens.pos_T == 0
        # What follows is another sequence, padding (which has position 0), or another row.
        last_T = torch.cat([first_T[1:], first_T.new_ones(1)])
        before_TD = left_TD.roll(1, 0).masked_fill(first_T[:, None], 0)
        after_TD = right_TD.roll(-1, 0).masked_fill(last_T[:, None], 0)
        return torch.cat([before_TD, after_TD], -1)

    def log_q_now(self, z: Corrupted) -> Tensor:
        """[T] log q of the token that is there NOW, without gradient: the noise that Electric
        contrasts with."""
        assert isinstance(z, Cloze)
        assert z.logits_MV is not None
        now_M = z.logits_MV.float().log_softmax(-1).gather(-1, z.now_M[:, None]).squeeze(-1)
        return z.log_q_T.detach().index_copy(0, z.at_M, now_M.detach())

    def plan(self, tokens: Tokens, draws: Draws, *, fixed: bool = False) -> Plan:
        """Its own loss is over every token that may be chosen."""
        plan = self.chooser.plan(tokens, draws, fixed=fixed)
        plan = replace(plan, uniform_M=draws.uniform_T("sample")[plan.at_M])
        return plan.counting(generator=plan.candidates_T.sum())

    def forward(self, tokens: Tokens, plan: Plan) -> Cloze:
        assert plan.uniform_M is not None
        context_TD = self.context(tokens)
        at_M = plan.at_M
        log_q_T, _ = log_probability(self.head, context_TD, tokens.ids_T)
        with torch.no_grad():
            logits_MV = self.head(context_TD[at_M])
        new_M, _ = self.sampling.draw(logits_MV, tokens.ids_T[at_M], plan.uniform_M, plan.progress)
        changed = substitute(tokens, plan, new_M)
        return Cloze(changed, tokens.ids_T, plan, logits_MV, log_q_T=log_q_T)

    def likelihood(self, z: Corrupted) -> dict[str, Loss]:
        """- log q of every token that may be chosen, nats."""
        assert isinstance(z, Cloze)
        return {"generator": Loss(-z.log_q_T, z.plan.candidates_T)}

    def rates(self, z: Corrupted, losses: dict[str, Loss]) -> Terms:
        """It learns from every token, but its accuracy is that at the chosen ones."""
        assert z.logits_MV is not None
        return {"generator_accuracy": term(is_best(z.logits_MV, z), z.valid_M)}
