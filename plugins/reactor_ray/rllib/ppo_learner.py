"""RLlib's PPO learner with the same updates, and without what it does for each minibatch that nothing comes of."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from numbers import Number
from typing import Any

import torch
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils import force_tuple
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger
from ray.rllib.utils.metrics.stats import StatsBase, SumStats
from ray.rllib.utils.minibatch_utils import MiniBatchCyclicIterator
from torch import nn

__all__ = ["ReactorPPOTorchLearner"]


class ReactorPPOTorchLearner(PPOTorchLearner):
    """RLlib's ``PPOTorchLearner`` with less work around each update: the same weights, optimiser states and results, bit for bit.

        >>> config = PPOConfig().learners(learner_class=ReactorPPOTorchLearner)

    With small networks most of an update of RLlib's is not the update. Here minibatches are rows of tensors, cut without a walk
    over a tree; metrics are found by their keys at once; how far a minibatch is off policy is computed for the last one only, as no
    other's is reported; modules that are in training mode are not put into it again; and one look at all gradients says whether
    they are finite.

    **What stays as it was.** Losses, gradients, their clipping, optimisers and schedules are RLlib's, and so are the random numbers
    by which rows are shuffled. Override ``compute_loss_for_module``, ``compute_gradients``, ``postprocess_gradients``,
    ``apply_gradients`` or ``after_gradient_based_update`` as ever.

    **Where it is RLlib's own way**, with the same results and less of the speed: batches with a time rank (modules with state) or
    with nested observations are cut by RLlib's iterator; gradients that are not finite, ``_torch_grad_scaler_class`` and
    ``_torch_lr_scheduler_classes`` are applied by RLlib's ``apply_gradients``; with ``num_learners`` above 1 and with
    ``torch_compile_learner`` the whole update is RLlib's.

    Args:
        **kwargs: As for ``PPOTorchLearner``.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.metrics = _Metrics(stats_cls_lookup=self.config.stats_cls_lookup, root=False)
        self._last: Any = None
        self._parts: list[nn.Module] | None = None

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        if self._last is not None:
            super()._compute_off_policyness(self._last)
            self._last = None
        super().after_gradient_based_update(timesteps=timesteps)

    def apply_gradients(self, gradients_dict: dict[Hashable, Any]) -> None:
        if self._grad_scalers is not None or self._lr_scheduler_classes is not None or self.config.torch_skip_nan_gradients:
            super().apply_gradients(gradients_dict)
            return
        for parameter, gradient in gradients_dict.items():
            self._params[parameter].grad = gradient
        optimizers = [self.get_optimizer(module_id, name) for module_id, names in self._module_optimizers.items() for name in names]
        groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        gradients = [one.grad for group in groups for one in group["params"] if one.grad is not None]
        # A norm may overflow where gradients are finite: then RLlib's own look at each of them says so.
        if gradients and torch.stack([torch.linalg.vector_norm(one) for one in gradients]).isfinite().all():
            for optimizer in optimizers:
                optimizer.step()
        else:
            super().apply_gradients(gradients_dict)

    def _create_iterator_if_necessary(self, **kwargs: Any) -> Iterable[MultiAgentBatch]:
        self._parts = None  # modules may have come or gone since the last update
        found = super()._create_iterator_if_necessary(**kwargs)
        return _Minibatches(found) if type(found) is MiniBatchCyclicIterator and _of_rows(found._batch) else found

    def _compute_off_policyness(self, batch: Any) -> None:
        self._last = batch

    def _uncompiled_update(self, batch: Any, **kwargs: Any) -> Any:
        if self.config.num_learners > 1 or self.config.torch_compile_learner:
            return super()._uncompiled_update(batch, **kwargs)
        self._compute_off_policyness(batch)
        fwd_out = self._forward_train(batch)
        loss_per_module = self.compute_losses(fwd_out=fwd_out, batch=batch)
        gradients = self.compute_gradients(loss_per_module)
        self.apply_gradients(self.postprocess_gradients(gradients))
        return fwd_out, loss_per_module, {}

    def _forward_train(self, batch: Any) -> Any:
        """``self.module.forward_train(batch)``, without a walk over all parts of modules that are in training mode."""
        if self._parts is None:
            self._parts = _parts(self.module)
        if self._parts and all(part.training for part in self._parts):
            modules = self.module._rl_modules
            return {module_id: modules[module_id]._forward_train(rows) for module_id, rows in batch.items()}
        return self.module.forward_train(batch)


def _parts(module: MultiRLModule) -> list[nn.Module]:
    """All parts of the modules, if putting them into training mode is all that their ``forward_train`` does; else none."""
    kind, kinds = type(module), {type(one) for one in module._rl_modules.values()}
    rllibs = kind.forward_train is RLModule.forward_train and kind._forward_train is MultiRLModule._forward_train
    if not rllibs or any(one.forward_train is not TorchRLModule.forward_train for one in kinds):
        return []
    if any(one.inference_only for one in module._rl_modules.values()):
        return []
    found = [part for one in module._rl_modules.values() for part in one.modules()]
    return found if all(type(part).train is nn.Module.train for part in found) else []


def _of_rows(batch: MultiAgentBatch) -> bool:
    """Whether a batch is nothing but rows of tensors: nothing nested, no time rank, no sequences."""
    return all(
        rows.get_interceptor is rows.max_seq_len is rows.num_grad_updates is None
        and not (rows._slice_seq_lens_in_B or rows.zero_padded or rows.time_major or SampleBatch.SEQ_LENS in rows)
        and all(type(column) is torch.Tensor and column.shape[:1] == (len(rows),) for column in rows.values())
        and len(rows) > 0
        for rows in batch.policy_batches.values()
    )


class _Minibatches:
    """The minibatches of RLlib's iterator: the same rows, in the same order, with the same draws when they are shuffled."""

    def __init__(self, rllibs: MiniBatchCyclicIterator) -> None:
        self._of = rllibs

    def __iter__(self) -> Iterator[MultiAgentBatch]:
        of = self._of
        batches = of._batch.policy_batches
        starts, epochs, count = dict.fromkeys(batches, 0), dict.fromkeys(batches, 0), 0
        while count < of._num_total_minibatches if of._num_total_minibatches else min(epochs.values()) < of._num_epochs:
            minibatch = {}
            for module_id, rows in batches.items():
                start, end, pieces = starts[module_id], starts[module_id] + of._minibatch_size, []
                while end >= len(rows):
                    pieces.append({name: column[start:] for name, column in rows.items()})
                    start, end = 0, end - len(rows)
                    epochs[module_id] += 1
                    if of._shuffle_batch_per_epoch:
                        rows.shuffle()
                if end > start:
                    pieces.append({name: column[start:end] for name, column in rows.items()})
                starts[module_id] = end
                # Copied even if there is one piece, as by RLlib: the bits of linear algebra hang on where arrays begin.
                columns = {name: torch.cat([piece[name] for piece in pieces]) for name in rows}
                minibatch[module_id] = SampleBatch(columns, _num_grad_updates=0.0)
            yield MultiAgentBatch(minibatch, len(of._batch))
            count += 1


class _Metrics(MetricsLogger):
    """Goes straight to what has been logged before: then no argument but the value counts."""

    def log_value(self, key: str | tuple[str, ...], value: Any, **kwargs: Any) -> None:
        found = self._known((key,) if isinstance(key, str) else key)
        if found is None:
            super().log_value(key, value, **kwargs)
        elif type(found) is SumStats and type(value) is int and [type(one) for one in found.values] == [int] and not found._window:
            found.values = [found.values[0] + value]  # np.nansum of two integers, which takes long
        else:
            found.push(value)

    def log_dict(self, value_dict: dict[Any, Any], *, key: str | tuple[str, ...] | None = None, **kwargs: Any) -> None:
        prefix = force_tuple(key)
        known = [found for name in value_dict if (found := self._known((*prefix, *force_tuple(name)))) is not None]
        if len(known) < len(value_dict) or not all(isinstance(value, Number | torch.Tensor) for value in value_dict.values()):
            super().log_dict(value_dict, key=key, **kwargs)
            return
        for found, value in zip(known, value_dict.values(), strict=True):
            found.push(value)

    def _known(self, key: tuple[str, ...]) -> StatsBase | None:
        found: Any = self.stats
        for name in key:
            if type(found) is not dict or type(name) is not str:
                return None
            found = found.get(name)
        return found if isinstance(found, StatsBase) else None
