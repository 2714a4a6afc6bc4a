"""What does one call of an actor's network cost, by what evaluates it?

Microseconds from observations that lie in memory to greedy actions, for the networks of CartPole (64 and 64), of the paper's
Blackjack (32) and a larger one (256 and 256), for 1, 4 and 16 environments in one batch. ``reactor_rl`` is the compiled kernel as
actors use it; ``torch, layer by layer`` is what they use where nobody compiled it; ``torch`` is what they use for networks of other
layers: SB3's ``QNetwork`` under ``torch.inference_mode()``; ``torch, layers alone`` leaves out what SB3 does before the first
layer. All have one thread, as actors do, and choose the same actions, which is checked first. A Nature CNN, which the kernel does
not know, is there for comparison.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from common import Contender, Figures, arguments, chosen, interleaved, rounds_of, run_cases, seconds_of, write_json
from showing import bar_plot, print_table, rate_rows

OURS = "reactor_rl"
LAYERS = "torch, layer by layer"
NETWORKS = {"4-64-64-2": (4, (64, 64), 2), "3-32-2": (3, (32,), 2), "8-256-256-4": (8, (256, 256), 4)}
NATURE = "Nature CNN, 84 x 84 x 4"
BATCHES = (1, 4, 16)
STEPS = 64
"""Observations that calls take in turn."""


def network(name: str) -> tuple[Any, Any]:
    """SB3's Q-network, and the space that it is for."""
    import torch
    from gymnasium import spaces
    from stable_baselines3.common.torch_layers import FlattenExtractor, NatureCNN
    from stable_baselines3.dqn.policies import QNetwork

    torch.manual_seed(0)
    if name == NATURE:
        space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
        extractor: Any = NatureCNN(space)
        return QNetwork(space, spaces.Discrete(6), extractor, extractor.features_dim, []).eval(), space
    features, sizes, actions = NETWORKS[name]
    space = spaces.Box(-1, 1, (features,), np.float32)
    return QNetwork(space, spaces.Discrete(actions), FlattenExtractor(space), features, list(sizes)).eval(), space


class Calls(Contender):
    """Greedy actions for a batch of observations, again and again."""

    def __init__(self, kind: str, name: str, batch: int) -> None:
        import torch

        self.q_net, space = network(name)
        rng = np.random.default_rng(0)
        shape = (STEPS, batch, *space.shape)
        rows = rng.integers(0, 256, shape, np.uint8) if space.dtype == np.uint8 else rng.uniform(-1, 1, shape).astype(np.float32)
        self.greedy = self.alone(rows) if kind.endswith("layers alone") else self.bound(kind, rows, space)
        with torch.inference_mode():
            values = self.q_net(torch.from_numpy(rows).flatten(0, 1)).reshape(STEPS, batch, -1).numpy()
        best = values.max(-1)
        for step in range(STEPS):
            taken = np.take_along_axis(values[step], self.greedy(step)[:, None], 1)[:, 0]
            if not np.allclose(taken, best[step], rtol=1e-4, atol=1e-5):
                raise RuntimeError(f"{kind} takes other actions than torch")

    def bound(self, kind: str, rows: Any, space: Any) -> Callable[[int], Any]:
        """As an actor evaluates it, one way or the other."""
        from reactor_sb3.acting.forwards import held_forward, sent
        from reactor_sb3.policies import dense_forward
        from reactor_torch import Calls, TorchNet, kernels, parameter_record, write_parameters
        from reactor_torch.forward import bind_compiled, bind_torch

        record = np.zeros((), parameter_record(self.q_net.state_dict()))
        write_parameters(record, self.q_net.state_dict())
        record.flags.writeable = False
        if kind == "torch":
            return TorchNet(sent(held_forward(self.q_net)), Calls()).bind(record, {"": rows}, judges=False).argmax
        layers = dense_forward(self.q_net, "q_net")
        assert not isinstance(layers, str)
        if kind == LAYERS:
            return bind_torch(layers, record, rows).argmax
        if kernels.compiled is None:
            raise NotImplementedError("the extension is not used here")
        return bind_compiled(layers, record, rows).argmax

    def alone(self, rows: Any) -> Callable[[int], Any]:
        """The layers themselves, on tensors."""
        import torch

        layers, given = self.q_net.q_net, torch.from_numpy(rows)

        def greedy(step: int) -> Any:
            with torch.inference_mode():
                return layers(given[step]).argmax(1).numpy()

        return greedy

    def go(self, count: int) -> float:
        greedy = self.greedy
        for _ in range(count):
            for step in range(STEPS):
                greedy(step)
        return count * STEPS


KINDS = (OURS, LAYERS, "torch", "torch, layers alone")


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    import torch

    from reactor_rl.runtime.numeric_threads import one_numeric_thread

    torch.set_num_threads(1)
    gc.freeze()  # torch's modules need not be looked at between two slices
    kinds = ("torch",) if case == NATURE else KINDS
    of_batch = {batch: chosen({kind: partial(Calls, kind, case, batch) for kind in kinds}, options) for batch in BATCHES}
    builders = {f"{batch} {kind}": make for batch, found in of_batch.items() for kind, make in found.items()}
    with one_numeric_thread():
        figures = interleaved(builders, rounds=rounds_of(options), seconds=seconds_of(options, 0.02), warm_up=0.05)
    return {str(batch): only(figures, f"{batch} ").as_json(OURS) for batch in BATCHES}


def only(figures: Figures, prefix: str) -> Figures:
    """The figures of contenders whose names begin so, without that."""
    rates, skipped = (
        {name.removeprefix(prefix): found for name, found in part.items() if name.startswith(prefix)}
        for part in (figures.rates, figures.skipped)
    )
    return Figures(rates, skipped)


def show(name: str, found: dict[str, Any]) -> None:
    for batch, figures in found.items():
        title = f"{name}, batch of {batch}"
        print_table(title, ["evaluated by", "a call", "ours is", "min-max"], rate_rows(figures, OURS, per_item=True))


def main() -> None:
    options = arguments(__doc__, rounds=15).parse_args()
    cases = run_cases(__file__, options, [*NETWORKS, NATURE], measure, show=show)
    if cases is None:
        return
    apart: dict[str, dict[str, Any]] = {}
    for name, found in cases.items():
        apart |= {name: found} if "error" in found else {f"{name}, batch of {batch}": one for batch, one in found.items()}
    write_json(options, "inference", apart)
    groups = {
        name: {one: 1e6 / rate["median"] for one, rate in found.get("rates", {}).items()}
        for name, found in apart.items()
        if not name.startswith(NATURE) and not name.endswith(" 4")  # one bar compares nothing; 4 is between 1 and 16
    }
    bar_plot(options.output / "inference.png", "A call of an actor's network", groups, "us, shorter is better")


if __name__ == "__main__":
    main()
