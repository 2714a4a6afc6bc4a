"""The networks of an algorithm by name: each one flat array of parameters, stepped, followed and sent as a whole."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from reactor_torch.autograd import Autograd
from reactor_torch.batches import MinibatchSlicer
from reactor_torch.flat import FlatOptimizer, FlatParameters, have_hooks, kernels_for
from reactor_torch.loss import Loss, Network, Task
from reactor_torch.parameters import computed_in
from reactor_torch.streams import drawing_nothing, draws, torch_state, torch_stream
from reactor_torch.unmodified import hook_of

__all__ = ["Networks", "blocks_of", "halved"]

Array = npt.NDArray[Any]
LEAST_ROWS, LEAST_FLOPS = 128, 2**29
"""Of a block of rows that autograd computes: with fewer, blocks of a minibatch take more than 5 % longer than the whole of it does.

Part of the algorithm, as gradients of other blocks have other last bits. 2**29 operations take some 5 ms of a core.
"""


# ---------------------------------------------------------------------- blocks of rows


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operations by torch's own formulas for them. ``FlopCounterMode`` cannot do so within ``torch.autograd.grad``."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if (count := flop_registry.get(func.overloadpacket)) is not None:
            self.flops += int(count(*args, **(kwargs or {}), out_val=found))
        return found


def blocks_of(rows: int, block: int | None) -> int:
    """How many blocks of rows a minibatch has; ``None`` for one of all rows."""
    return 1 if block is None else -(-rows // block)


def halved(blocks: int) -> int:
    """How many of two or more blocks are added up before the others: the largest power of two below their number.

    Gradients of ``n`` blocks are ``sum(n) = sum(halved(n)) + sum(n - halved(n))``. This tree is the only order in which they are
    added, so it does not matter who computes which blocks.
    """
    return 1 << ((blocks - 1).bit_length() - 1)


class Networks(Mapping[str, Any]):
    """Networks and losses of an algorithm.

    As a mapping it has the modules, which is what losses are given. Pickled, it has modules and losses, but no optimisers: a
    gradient worker steps nothing. Modules that networks have in common stay so.

    Args:
        parts: The networks, by name.
        losses: The losses, by name, in the order of their lanes.

    Attributes:
        parts: The networks.
        losses: This round's losses, by name.
        learned: Networks as :meth:`Loss.fast` is given them, by name; empty if autograd learns.
        why: The reason why autograd learns; ``None`` if the extension does, by the ``fast`` of all losses.
        draws: Whether any network may draw from torch's generator while it learns: see :func:`~reactor_torch.draws`.
        seed: What such a network draws from in this round, together with :attr:`task` and the block of rows.
        task: How many times gradients were asked for in this round.
        writes: Names of buffers that networks change while they learn, as :meth:`plan_blocks` has seen, besides those of a network
            with ``buffers=True`` that its own loss changes.

    Raises:
        ValueError: If a loss names a network that there is not, or networks share a parameter.
        TypeError: If parameters are not float32 on one device.
    """

    def __init__(self, parts: Mapping[str, Network], losses: Mapping[str, Loss]) -> None:
        self.parts = dict(parts)
        self._check(losses)
        self._names = {name: _own(part) for name, part in self.parts.items()}
        self._learning = frozenset(name for name, part in self.parts.items() if part.optimizer is not None)
        self.writes: tuple[str, ...] = ()
        self._blocks: dict[str, int | None] = dict.fromkeys(losses)
        self._rows = dict.fromkeys(losses, 1)
        self.losses = dict(losses)
        self._make()
        self._optimizers = {
            name: FlatOptimizer(part.optimizer, self._flats[name], _idle(part.optimizer, self._flats[name]), self.kernels(name))
            for name, part in self.parts.items()
            if part.optimizer is not None
        }

    def _check(self, losses: Mapping[str, Loss]) -> None:
        for name, loss in losses.items():
            for network in (loss.learns, *loss.reads):
                if network not in self.parts:
                    raise ValueError(f"loss {name!r} is about a network {network!r}, and there are {sorted(self.parts)}")
            if self.parts[loss.learns].optimizer is None:
                raise ValueError(f"loss {name!r} is to make {loss.learns!r} learn, which has no optimizer")

    def _make(self) -> None:
        self._flats = {name: self._flat_of(name, part) for name, part in self.parts.items()}
        self._check_shared()
        self._parameters = [one for name in self._learning for one in self._flats[name].parameters]
        self._hooked = self._all_hooked()
        self._touched = any(hook_of(part) for module in self.modules() for part in module.modules())
        self._targets: dict[tuple[str, str], _Target] = {}
        self._numbers = {name: number for number, name in enumerate(self.losses)}
        self._slicers = {name: MinibatchSlicer() for name in self.losses}
        self._bound = False
        self._convolving = frozenset(name for name, part in self.parts.items() if _convolves(part.module))
        self.draws = any(map(draws, self.modules()))
        self.seed, self.task = 0, 0
        self._read()

    def _flat_of(self, name: str, part: Network) -> FlatParameters:
        try:
            return FlatParameters([pair for pair in _named(part.module) if pair[0] in self._names[name]], name in self._learning)
        except ValueError as error:
            raise ValueError(f"of the network {name!r} {error}") from None

    def _check_shared(self) -> None:
        known: dict[int, tuple[str, str]] = {}
        for name, flat in self._flats.items():
            for path, parameter in zip(flat.names, flat.parameters, strict=True):
                owner, first = known.setdefault(id(parameter), (name, path))
                if owner != name:
                    raise ValueError(
                        f"the networks {owner!r} and {name!r} share a parameter ({first!r}, {path!r}), and each is to have its own "
                        "values of it: give one of them a copy (copy.deepcopy)"
                    )

    def _read(self) -> None:
        """Choose who learns: the extension all networks, or autograd."""
        self.why, self.learned = self._read_by_extension()
        self._changing = [one for name in self for one in self.buffers(name)]
        learning = {} if self.compiled else dict.fromkeys(loss.learns for loss in self.losses.values())
        self._autograd = {name: Autograd(self, name) for name in learning}
        self._leaves = {name: self._leaf(loss) for name, loss in self.losses.items()}

    def _leaf(self, loss: Loss) -> int | None:
        """Rows of the leaves that the extension adds up by itself, whatever the rows of a minibatch."""
        adds_up = self.compiled and loss.by_blocks and self.learned[loss.learns].adds_up
        return int(kernels_for(self._flats[loss.learns].device).LEAF) if adds_up else None

    def _read_by_extension(self) -> tuple[str | None, dict[str, Any]]:
        found: dict[str, Any] = {}
        for loss in self.losses.values():
            if (why := loss.why_not_fast()) is not None:
                return why, {}
            for name, part in self.parts.items():
                if name not in (loss.learns, *loss.reads):
                    continue
                flat = self._flats[name]
                if kernels_for(flat.device) is None:
                    where = flat.device.type
                    return (f"{name!r} is on {where}" if where != "cpu" else "the extension is not used here, see `doctor`"), {}
                if part.read is None:
                    return f"{name!r} is a Network without read=", {}
                if name not in found:
                    found[name] = part.read(part.module, flat)
                if isinstance(found[name], str):
                    return f"{name!r}: {found[name]}", {}
        return None, found

    # ------------------------------------------------------------------ modules by name

    def __getitem__(self, name: str) -> Any:
        return self.parts[name].module

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def compiled(self) -> bool:
        """Whether the extension learns, by :meth:`Loss.fast` of all losses; else autograd differentiates all."""
        return self.why is None

    def loss(self, name: str) -> Any:
        """One of this round's losses."""
        return self.losses[name]

    def flat(self, name: str) -> FlatParameters:
        """The parameters of a network that are its own."""
        return self._flats[name]

    def hooked(self, name: str) -> list[int]:
        """Numbers of a network's parameters that have hooks, see :meth:`FlatParameters.hooked`: :meth:`step` calls these."""
        return self._hooked.get(name, [])

    def _all_hooked(self) -> dict[str, list[int]]:
        """The same of all networks that learn; nothing, and soon, if there are no hooks."""
        return {name: self._flats[name].hooked() for name in self._learning} if have_hooks(self._parameters) else {}

    @property
    def touched(self) -> bool:
        """Whether somebody has hung hooks onto modules, which then are called with whole minibatches."""
        return self._touched

    def kernels(self, name: str) -> Any:
        """The extension for what goes over all parameters of a network, where it learns; else ``None``."""
        return kernels_for(self._flats[name].device) if self.compiled else None

    @property
    def may_be_helped(self) -> bool:
        """Whether a :class:`~reactor_torch.Team` can take part in computing gradients: of dense layers, or of convolutions."""
        return self.compiled or all(one.layers.convolve for one in self._autograd.values())

    def sees_images(self, name: str) -> bool:
        """Whether a network has convolutions: then its losses are given images as they are, not preprocessed and flat."""
        return name in self._convolving

    def modules(self) -> list[nn.Module]:
        """The modules of all networks, each with all its parts."""
        return [part.module for part in self.parts.values() if isinstance(part.module, nn.Module)]

    # ------------------------------------------------------------------ rounds and updates

    def begin_round(self, losses: Mapping[str, Loss], parts: Mapping[str, Network] | None = None, seed: int = 0) -> None:
        """Take over what was loaded or replaced since the last round, and begin to train.

        Args:
            losses: This round's losses, under the same names.
            parts: The networks as they are now, for the norms that gradients are clipped to; ``None`` if those stay.
            seed: What networks draw from that have dropout, say; another one for each round.
        """
        self.seed, self.task = seed, 0
        for name, part in (parts or {}).items():
            if self.parts[name].max_grad_norm != part.max_grad_norm:
                self.parts[name] = replace(self.parts[name], max_grad_norm=part.max_grad_norm)
        self.losses |= losses
        self.bind()
        self._hooked = self._all_hooked()
        self._bound = True
        self._slicers = {name: MinibatchSlicer() for name in self._numbers}
        self.set_training_mode(True)

    def end_round(self) -> None:
        """Bring the networks that learn into the mode in which they act."""
        self._bound = False
        self.set_training_mode(False)

    def bind(self) -> None:
        """Take over parameters, gradients, moments and buffers that were replaced, by loading for instance."""
        with drawing_nothing():
            for name, flat in self._flats.items():
                if name in self._optimizers:
                    self._optimizers[name].bind()
                else:
                    flat.bind()
        buffers = [one for name in self for one in self.buffers(name)]
        if self.compiled and any(one is not known for one, known in zip(buffers, self._changing, strict=True)):
            self._read()  # what was read has views of the former ones

    def set_training_mode(self, learns: bool) -> None:
        """Switch the networks that learn; targets stay as they are, and dense layers without buffers know no difference."""
        if self.compiled and not self._changing:  # switching takes as long as a tenth of an update
            return
        for name in self._learning:
            module = self.parts[name].module
            if isinstance(module, nn.Module):
                switch: Any = getattr(module, "set_training_mode", module.train)
                switch(learns)

    def plan_blocks(self, examples: Mapping[str, Any]) -> None:
        """Decide of which blocks of rows the gradients of each loss are the sum: by networks and minibatches alone.

        The extension has blocks of its own for most losses. Elsewhere a block is so large that it takes milliseconds. Where a
        network changes buffers while it learns, as batch normalisation does, or has hooks, it is the whole minibatch: other blocks
        would be another loss.

        Args:
            examples: For each loss a minibatch, as large as there are any.
        """
        self.writes = self._written(examples)
        for name, batch in examples.items():
            self._rows[name], self._blocks[name] = (rows := len(batch)), None
            if self.writes or self._leaves[name] is not None or self._touched or rows < 2 * LEAST_ROWS:
                continue
            blocks, of_row = 1, self._flops(name, batch[slice(0, 2)]) / 2
            while rows >= 2 * blocks * LEAST_ROWS and rows * of_row >= 2 * blocks * LEAST_FLOPS:
                blocks *= 2
            self._blocks[name] = None if blocks == 1 else -(-rows // blocks)

    def kept(self) -> dict[str, torch.Tensor]:
        """Buffers of all networks but those with ``buffers=True``, by name; each of them once."""
        others = {id(one) for name in self for one in self.buffers(name)}
        return {name: one for name, one in self._named_buffers() if id(one) not in others}

    def _named_buffers(self) -> list[tuple[str, torch.Tensor]]:
        """All buffers, each by the first of its names."""
        found: dict[int, tuple[str, torch.Tensor]] = {}
        for name, part in self.parts.items():
            for path, one in part.module.named_buffers() if isinstance(part.module, nn.Module) else ():
                found.setdefault(id(one), (f"{name}.{path}", one))
        return list(found.values())

    def _written(self, examples: Mapping[str, Any]) -> tuple[str, ...]:
        """Names of buffers that are changed by gradients of some rows with any numbers in them."""
        parts = [part for module in self.modules() for part in module.modules()]
        before = [
            (part._buffers, name, one, one.clone()) for part in parts for name, one in part._buffers.items() if one is not None
        ]
        if self.compiled or not before:  # the extension calls no module
            return ()
        found: dict[str, None] = {}
        self.set_training_mode(True)
        for loss, batch in examples.items():
            own = {id(one) for one in self.buffers(self.loss(loss).learns)}
            were = {name: (one, one._version, one.clone()) for name, one in self._named_buffers() if id(one) not in own}
            self.gradients(loss, _stirred(batch[slice(0, 2)]))
            now = dict(self._named_buffers())
            for name, (one, version, value) in were.items():
                if now.get(name) is not one or one._version != version or not torch.equal(one, value):
                    found[name] = None
        self.set_training_mode(False)
        with torch.no_grad():
            for buffers, name, one, value in before:
                buffers[name] = one
                one.copy_(value)
        return tuple(found)

    def _flops(self, loss: str, batch: Any) -> int:
        """Operations of products and convolutions that the gradients of some rows take; 0 if a buffer changes meanwhile."""
        buffers = [buffer for module in self.modules() for buffer in module.buffers()]
        before = [buffer.clone() for buffer in buffers]
        self.set_training_mode(True)
        with _Counter() as counter:
            if self.compiled and self.sees_images(learns := self.loss(loss).learns):  # where there is nothing to count
                Autograd(self, learns).gradients(self.loss(loss), batch)
            else:
                self.gradients(loss, batch)
        self.set_training_mode(False)
        same = all(torch.equal(buffer, was) for buffer, was in zip(buffers, before, strict=True))
        for buffer, was in zip(buffers, before, strict=True):
            buffer.copy_(was)
        return int(counter.flops) if same else 0

    @property
    def most_blocks(self) -> int:
        """Blocks of the largest minibatch."""
        return max(blocks_of(rows, self.block(name)) for name, rows in self._rows.items())

    def block(self, loss: str) -> int | None:
        """Rows of the blocks whose gradients are added up as a tree, see :func:`halved`; ``None`` for one of all rows."""
        leaf = self._leaves[loss]
        return self._blocks[loss] if leaf is None else leaf

    def gradients(self, loss: str, batch: Any, of: int | None = None, first: int = 0) -> Array:
        """Overwrite the gradients of the network that a loss is about; from the loss by what it says of a minibatch.

        Args:
            loss: Name of the loss.
            batch: A minibatch, or blocks of one that are added up before they are added to any others.
            of: Rows of the whole minibatch.
            first: Number of the first block.

        Returns:
            The loss's statistics, float32; likewise.
        """
        block = None if self._leaves[loss] is not None else self._blocks[loss]
        if block is None or len(batch) <= block:
            return self._block_gradients(loss, batch, of, first)
        flat, of = self._flats[self.loss(loss).learns], of or len(batch)

        def added(begin: int, end: int) -> Array:
            if end - begin == 1:
                return self._block_gradients(loss, batch[slice(begin * block, min(end * block, len(batch)))], of, first + begin)
            middle = begin + halved(end - begin)
            statistics = added(begin, middle)
            # The right half overwrites them.
            gradients = flat.gradients.clone()
            statistics = statistics + added(middle, end)
            flat.gradients.add_(gradients)
            return statistics

        return added(0, blocks_of(len(batch), block))

    def _block_gradients(self, loss: str, batch: Any, of: int | None, block: int) -> Array:
        if of is not None and self._leaves[loss] is None:
            batch = batch.aligned()  # it is a view of a port here, and of a round there
        if self._convolving:
            batch = batch.images() if self.may_be_helped else batch.channels_last()
        one = self.losses[loss]
        if self.compiled:
            with drawing_nothing():
                return np.array(one.fast(self.learned, batch, 1 / (of or len(batch))), np.float32)
        autograd = self._autograd[one.learns]
        if not self.draws:
            return autograd.gradients(one, batch, of)
        # Keyed by what is drawn for: whoever computes the block draws the same.
        key = np.random.SeedSequence((self.seed, self.task, self._numbers[loss], block)).generate_state(1, np.uint64)
        with torch_stream(torch_state(int(key[0] >> 1))):
            return autograd.gradients(one, batch, of)

    def compute(self, tasks: Sequence[Task]) -> list[Mapping[str, float]]:
        """The gradients of tasks, here and one after the other; each sees buffers as they were before all of them.

        Returns:
            Statistics of each, by name.
        """
        self.task += 1
        found: list[Mapping[str, float]] = []
        before = [(one, one.clone()) for one in self._changing] if len(tasks) > 1 else []
        after: list[tuple[torch.Tensor, torch.Tensor]] = []
        for task in tasks:
            found.append(self.named(task.loss, self.gradients(task.loss, self._slicers[task.loss](task.batch, task.rows))))
            if before:
                after += [(one, one.clone()) for one in self.buffers(self.losses[task.loss].learns)]
                _put(before)
        _put(after)
        return found

    def named(self, loss: str, statistics: Array) -> dict[str, float]:
        """Statistics of a loss, by name."""
        return dict(zip(self.losses[loss].statistics, statistics.tolist(), strict=True))

    def step(self, name: str, gradient: float | None = None) -> None:
        """Clip the gradients of a network and step along them.

        Args:
            name: Name of the network.
            gradient: Gradient of each parameter, where it is known in closed form; ``None`` for what a loss has computed.
        """
        flat, most = self._flats[name], self.parts[name].max_grad_norm
        if gradient is not None:
            flat.gradients.fill_(gradient)
        if self._hooked:
            flat.call_hooks(self.hooked(name))
        if most is not None:
            flat.clip(most, self.kernels(name))
        self._optimizers[name].step()

    def follow(self, target: str, source: str, tau: float) -> None:
        """Move a target ``tau`` of the way towards a network; running statistics of batch normalisation are copied."""
        if not self._bound:
            self._flats[source].bind()
            self._flats[target].bind()
        known = self._targets.get((target, source))
        if known is None:
            _check_alike(target, _shapes(self[target]), source, _shapes(self[source]))
            known = self._targets[target, source] = _Target(self[source], self._flats[source], self[target], self._flats[target])
        known.follow(tau, self.kernels(target))

    # ------------------------------------------------------------------ what else gradients depend on

    def buffers(self, name: str) -> list[torch.Tensor]:
        """The buffers that a network's loss changes besides parameters; empty without ``Network(buffers=True)``."""
        part = self.parts[name]
        return list(part.module.buffers()) if part.buffers and isinstance(part.module, nn.Module) else []

    def others(self) -> list[torch.Tensor]:
        """Tensors of the modules besides flat parameters and such buffers: frozen parameters, constant buffers; each once."""
        known = {id(one) for flat in self._flats.values() for one in flat.parameters}
        known |= {id(one) for name in self for one in self.buffers(name)}
        parts = {id(one): one.detach() for module in self.modules() for one in (*module.parameters(), *module.buffers())}
        return [one for number, one in parts.items() if number not in known]

    def move(self, places: Mapping[str, tuple[torch.Tensor, torch.Tensor | None]]) -> None:
        """Have parameters, and perhaps gradients, in other arrays from now on; see :meth:`FlatParameters.move`.

        Args:
            places: For each network that moves, where its parameters are, and where its gradients are to be.
        """
        for name, (data, gradients) in places.items():
            self._flats[name].move(data, gradients)
        self._read()  # what was read has views of the former arrays

    def let_go(self) -> None:
        """Leave no gradients behind, which an optimiser would step along: others are made of the same modules."""
        for name in self._learning:
            for parameter in self._flats[name].parameters:
                parameter.grad = None

    def to(self, device: torch.device) -> Networks:
        """The same on a device: this object without optimisers, its modules moved."""
        for name, part in self.parts.items():
            self.parts[name] = replace(part, module=_moved(part.module, device))
        self._optimizers = {}
        self._make()
        return self

    # One pickle of all modules, so that what they have in common stays so.

    def __getstate__(self) -> dict[str, Any]:
        modules = _copied({name: part.module for name, part in self.parts.items()}, self.parts.values())
        parts = {name: replace(part, module=modules[name], optimizer=None, excluding=None) for name, part in self.parts.items()}
        return {
            "parts": parts,
            "names": self._names,
            "learning": self._learning,
            "losses": self.losses,
            "blocks": (self._blocks, self._rows),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.parts, self._names, self._learning, self._optimizers = state["parts"], state["names"], state["learning"], {}
        self._blocks, self._rows = state["blocks"]
        self.losses = state["losses"]
        self._make()


def _put(values: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Overwrite each tensor by the other one of its pair."""
    for one, value in values:
        one.copy_(value)


def _stirred(batch: Any) -> Any:
    """Rows with other observations where these are numbers of any size: those of an example are all 0."""
    generator = torch.Generator().manual_seed(0)

    def other(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: other(one) for key, one in part.items()}
        if not isinstance(part, torch.Tensor) or not part.is_floating_point():
            return part
        return torch.randn(part.shape, generator=generator).to(part)

    stirred = copy.copy(batch)
    vars(stirred).update((name, other(part)) for name, part in vars(batch).items() if "observations" in name)
    return stirred


class _Target:
    """A network and what follows it."""

    def __init__(self, network: Any, flat: FlatParameters, target: Any, target_flat: FlatParameters) -> None:
        self.network, self.flat, self.target, self.target_flat = network, flat, target, target_flat
        self.whole = flat.names == target_flat.names == tuple(name for name, _ in _named(target))
        self.statistics = list(zip(_running(network), _running(target), strict=True))

    def follow(self, tau: float, kernels: Any) -> None:
        if self.whole:
            self.target_flat.blend(self.flat, tau, kernels)
        else:  # frozen ones may have been exchanged, and an extractor that two networks share moves with each of them, as in SB3
            for (_, one), (_, other) in zip(_named(self.network), _named(self.target), strict=True):
                # In this order SB3's polyak_update() rounds.
                other.data.mul_(1 - tau).add_(one.data, alpha=tau)
        for one, other in self.statistics:
            other.copy_(one)


def _named(module: nn.Module | Mapping[str, torch.Tensor]) -> list[tuple[str, Any]]:
    return list(module.named_parameters() if isinstance(module, nn.Module) else module.items())


def _shapes(module: nn.Module | Mapping[str, torch.Tensor]) -> list[tuple[str, torch.Size]]:
    return [(name, one.shape) for name, one in _named(module)]


def _check_alike(target: str, its: list[tuple[str, torch.Size]], source: str, theirs: list[tuple[str, torch.Size]]) -> None:
    """Refuse a target whose parameters are not those of the network that it follows, one by one."""
    for one, other in zip_longest(its, theirs):
        if one != other:
            name, _ = one or other or ("", None)
            raise ValueError(
                f"the target {target!r} follows {source!r} parameter by parameter, and from {name!r} on they are not alike: a "
                "layer of one of them was replaced, or shares its parameters; make the target anew (copy.deepcopy)"
            )


def _convolves(module: nn.Module | Mapping[str, torch.Tensor]) -> bool:
    return isinstance(module, nn.Module) and any(isinstance(part, nn.Conv2d) for part in module.modules())


def _running(module: Any) -> list[torch.Tensor]:
    """Running statistics of batch normalisation, as SB3 finds them."""
    return [one for name, one in module.state_dict().items() if "running_" in name] if isinstance(module, nn.Module) else []


def _own(part: Network) -> frozenset[str]:
    """Names of the parameters that a network learns, and of frozen ones; of a target, of all that no other module has."""
    others = set() if part.excluding is None else set(part.excluding.parameters())
    own = [(name, one) for name, one in _named(part.module) if one not in others]
    if part.optimizer is None:
        return frozenset(name for name, _ in own)
    optimised = {one for group in part.optimizer.param_groups for one in group["params"]}
    return frozenset(name for name, one in own if one in optimised or not one.requires_grad)


def _idle(optimizer: torch.optim.Optimizer, flat: FlatParameters) -> list[nn.Parameter]:
    """Parameters of an optimiser besides the flat ones: other networks learn them, or nobody."""
    known = {id(one) for one in flat.parameters}
    return [one for group in optimizer.param_groups for one in group["params"] if id(one) not in known]


def _copied(modules: dict[str, Any], parts: Iterable[Network]) -> dict[str, Any]:
    """A deep copy in a processor's memory, without optimisers and without the last actions that SB3's distributions remember."""
    memo: dict[int, Any] = {id(part.optimizer): None for part in parts if part.optimizer is not None}
    for module in modules.values():
        memo |= computed_in(module) if isinstance(module, nn.Module) else {}
        for part in module.modules() if isinstance(module, nn.Module) else ():
            optimizer = getattr(part, "optimizer", None)
            if isinstance(optimizer, torch.optim.Optimizer):
                memo[id(optimizer)] = None
    found: dict[str, Any] = copy.deepcopy(modules, memo)
    return {name: _moved(module, torch.device("cpu")) for name, module in found.items()}


def _moved(module: Any, device: torch.device) -> Any:
    """A module, or tensors by name, on a device."""
    if isinstance(module, nn.Module):
        return module.to(device)
    return {name: one.detach().to(device).requires_grad_(one.requires_grad) for name, one in module.items()}
