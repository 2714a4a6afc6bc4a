"""What updates are made of: the gradients of some losses, steps along them, and who computes them."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from reactor_sb3.acting.forwards import copied
from reactor_torch import Batch, Networks, Task, Update

__all__ = ["Minibatch", "descend", "finish", "gradients", "scratch_of", "shares_of"]


class Minibatch(NamedTuple):
    """Some rows of a batch, in its order.

    Attributes:
        batch: The batch.
        rows: The rows.
    """

    batch: Batch
    rows: slice


def gradients(minibatches: Mapping[str, Batch | Minibatch]) -> Update:
    """See :meth:`reactor_sb3.trainers.trainer.Trainer.gradients`."""
    found = yield tuple([Task(loss, *_rows_of(one)) for loss, one in minibatches.items()])
    return _merged(tuple(minibatches), found)


def descend(nets: Networks, minibatches: Mapping[str, Batch | Minibatch], split: bool) -> Update:
    """See :meth:`reactor_sb3.trainers.trainer.Trainer.descend`."""
    found: dict[str, float] = {}
    for together in [minibatches] if split else [{loss: one} for loss, one in minibatches.items()]:
        found |= yield from gradients(together)
        for loss in together:
            nets.step(nets.loss(loss).learns)
    return found


def finish(update: Update, nets: Networks) -> dict[str, float]:
    """Make updates here and now.

    Args:
        update: The updates.
        nets: What computes their gradients.

    Returns:
        What the updates end with.
    """
    statistics: Any = None
    while True:
        try:
            tasks = update.send(statistics)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        statistics = nets.compute(tasks)


def scratch_of(model: Any) -> Any:
    """A trainer with copies of all that learns: updates of it change nothing. It has no run, and is not to be kept.

    Args:
        model: The trainer. What SB3 saves besides the policy is what learns besides it.
    """
    scratch = object.__new__(type(model))
    memo: dict[int, Any] = {}
    vars(scratch).update({**vars(model), "_run": None, "_n_updates": 0, "policy": copied(model.policy, memo)})
    states, tensors = model._get_torch_save_params()
    for name in (*states, *tensors):
        if "." not in name and name != "policy":  # the others are in the policy
            setattr(scratch, name, copy.deepcopy(getattr(model, name), memo))
    if hasattr(scratch, "_create_aliases"):
        scratch._create_aliases()
    scratch.nets = Networks(scratch.networks(), scratch.losses())
    scratch.nets.begin_round(scratch.losses())
    return scratch


def shares_of(nets: Networks, rarer: float = 1.0) -> tuple[float, ...]:
    """Share of each loss in the time that gradients take, reckoned from parameters.

    A network that learns is gone through three times for each row: forwards, for gradients of weights, and of inputs. One that is
    only read is gone through forwards, and once more if gradients may be asked for through it.

    Args:
        nets: The networks.
        rarer: Updates for each one that all losses have; in the others there is the first one alone.
    """

    def size(name: str, passes: float) -> float:
        return passes * len(nets.flat(name).data)

    costs = [
        size(loss.learns, 3) + sum(size(name, 1 if nets.parts[name].optimizer is None else 2) for name in loss.reads)
        for loss in nets.losses.values()
    ]
    costs[0] *= rarer
    return tuple(cost / max(sum(costs), 1) for cost in costs)


def _rows_of(minibatch: Batch | Minibatch) -> tuple[Batch, slice]:
    return minibatch if isinstance(minibatch, Minibatch) else (minibatch, slice(0, len(minibatch)))


def _merged(losses: Sequence[str], found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Statistics of several losses; a name that more than one of them has gets the loss's in front."""
    if len(found) == 1:
        return dict(found[0])
    names = [name for one in found for name in one]
    return {
        name if names.count(name) == 1 else f"{loss}_{name}": value
        for loss, one in zip(losses, found, strict=True)
        for name, value in one.items()
    }
