"""The reactor that samples: its own environments, its own view of the parameters, its own random stream."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from reactor_gymnasium.plugin import EndedEpisode, StepBuffers, note_whose_info
from reactor_rl import Input, Output, Reactor, reaction, shutdown, startup
from reactor_rl.plugin import Pickled
from reactor_sb3.acting.behaviours import Behaviour, BoundBehaviour, Field, Rollout, Turn
from reactor_sb3.acting.normalization import Normalization, Normalizing
from reactor_sb3.acting.records import Observations, transition_record
from reactor_sb3.environments.seeded_envs import MakeRows, SeededEnvs, single_envs
from reactor_sb3.streams import Purpose, restore, state_of, stream, torch_generator
from reactor_torch import FILLING, torch_stream

__all__ = ["Actor", "ActorConfig", "StepInfo"]

Array = npt.NDArray[Any]

StepInfo = tuple[int, int, dict[str, Any]]
"""Step, environment and info of a transition that has one to report.

Where an episode has ended with a round, and somebody watches, another one follows: with the number of steps of a round in the place
of the step, and in the place of the info what the new episode begins with, laid out as the policy sees it, by key.
"""

EPISODE = np.dtype([("return", np.float64), ("length", np.int64)])
"""Return and length of an episode that ended at this step; a length of 0 where none did."""


@dataclass(frozen=True)
class ActorConfig:
    """The configuration of every actor of a program.

    Attributes:
        makes: Makes each environment; encoded by itself.
        observations: Layout of observations.
        action_space: Of every environment.
        policy: How the actors act.
        steps: Steps of each environment in a round.
        envs: Environments of an actor.
        actors: How many actors there are.
        seed: Of every random stream.
        normalization: What the policy sees instead of what the environments give, if that is not the same.
        make_rows: Makes what steps them.
    """

    makes: tuple[Pickled, ...]
    observations: Observations
    action_space: gymnasium.Space[Any]
    policy: Behaviour
    steps: int
    envs: int
    actors: int
    seed: int
    normalization: Normalization | None = None
    make_rows: MakeRows = single_envs

    @property
    def record(self) -> np.dtype[Any]:
        """Layout of an actor's round."""
        originals = None if self.normalization is None else self.normalization.originals
        return transition_record(self.observations, self.policy.fields, self.steps, self.envs, originals)

    @property
    def steps_taken(self) -> int:
        """Steps of all environments of an actor in a round, as far as it is known."""
        return self.steps * self.envs

    def longer(self, tried: Array) -> float:
        """How many times as long as a round that was tried, whose record this is, later ones are reckoned to take."""
        return 1.0

    def environments(self, first: int) -> SeededEnvs:
        """The environments of an actor, of which the first one has this number."""
        return SeededEnvs(self.makes, self.seed, Purpose.EPISODES, first, self.make_rows)

    def sample(self, actor: Actor, parameters: Array) -> None:
        """Let an actor sample a round with these parameters."""
        actor.roll(parameters)


class Slot:
    """One slot of the port that transitions leave by, with the views that a round needs.

    Args:
        record: The slot.
        layout: Of observations as the policy sees them.
        normalization: What makes them of those that environments give, if they are not the same.
        fields: Those of the policy.
    """

    def __init__(
        self, record: Array, layout: Observations, normalization: Normalization | None, fields: Sequence[Field] = ()
    ) -> None:
        self.record = record
        self.observations, self.nexts = layout.of(record, "observations"), layout.of(record, "next_observations")
        self.rollout = Rollout({name: record[name] for name in record.dtype.names or ()}, self.observations, self.nexts)
        self.given, self.given_nexts, self.rewards = self.observations, self.nexts, record["rewards"]
        if normalization is not None:
            layout, self.rewards = normalization.originals, record["original_rewards"]
            self.given = layout.of(record, "original_observations")
            self.given_nexts = layout.of(record, "original_next_observations")
        steps = len(self.rewards)
        before, after = ({one.name: record[one.name] for one in fields if one.told == when} for when in ("before", "after"))
        self.first = StepBuffers(layout, _of_step(self.given, 0), columns=_of_step(before, 0))
        # What is seen after the last step is the first of the next round.
        self.out = [
            StepBuffers(
                layout,
                _of_step(self.given, step + 1) if step + 1 < steps else None,
                _of_step(self.given_nexts, step),
                columns=_of_step(after, step) | (_of_step(before, step + 1) if step + 1 < steps else {}),
            )
            for step in range(steps)
        ]
        self.floats = [part for parts in (self.given_nexts, self.given) for part in parts.values() if part.dtype.kind == "f"]
        if FILLING in (record.dtype.names or ()):
            record[FILLING] = 0


def _of_step(parts: Mapping[str, Array], step: int) -> dict[str, Array]:
    return {key: part[step] for key, part in parts.items()}


def _after(ask: Callable[[int], None], act: Callable[[int], Array]) -> Callable[[int], Array]:
    def asked(step: int) -> Array:
        ask(step)
        return act(step)

    return asked


class Actor(Reactor):
    """Takes the steps of a round in its own environments."""

    parameters = Input()
    changed = Input()
    """Parameters in the place of those that are under way, when somebody has changed them between two rounds."""
    exploration = Input()
    """The rate of exploration at each step, ``(steps,)``, float32."""
    orders = Input()
    """Whether to begin new episodes first, and whether to report every info, ``(2,)``, bool."""
    acting = Input()
    """How to act from now on, a policy, and whether its memory begins anew; if settings have been changed between two rounds."""
    question = Input()
    """Between two rounds: something to ask of environments, and of which, by number."""
    under_way = Input()
    """The last round, where the learner is a round behind."""
    infos_under_way = Input()
    answers = Output()
    """The answers of :meth:`~reactor_sb3.environments.seeded_envs.SeededEnvs.ask`."""
    transitions = Output((), np.uint8)
    episodes = Output((0, 0), EPISODE)
    """Which episodes ended, ``(steps, envs)``."""
    infos = Output()
    """Those infos that there is something to do with, as a list of :data:`StepInfo`; absent if that would be empty."""

    def __init__(self, config: ActorConfig, bank_index: int) -> None:
        self.index = bank_index
        self.numbers = range(bank_index * config.envs, (bank_index + 1) * config.envs)
        # Those of other actors' environments stay where they are.
        self.config = replace(config, makes=config.makes[self.numbers.start : self.numbers.stop])
        self.transitions = Output((), config.record)
        self.episodes = Output((config.steps, config.envs), EPISODE)
        self.envs: SeededEnvs | None = None
        self.told: Behaviour | None = None  # how to act, if that is not what the program says

    @reaction(startup)
    def build(self) -> None:
        """Make the environments, here where they will live."""
        config = self.config
        self.random = stream(config.seed, Purpose.EXPLORATION, self.index)
        self.memory = config.policy.memory(self.numbers)
        self.asked = {field.name: field.asked for field in config.policy.fields if field.asked}
        self.slots: dict[int, Slot] = {}
        self.bound: dict[tuple[int, int], tuple[Array, BoundBehaviour]] = {}
        self.envs = config.environments(self.numbers.start)
        self.envs.build()
        with self.envs.rows.opened(changes=False) as envs:
            for number, env in zip(self.numbers, envs, strict=True):
                if env.action_space != config.action_space:
                    raise ValueError(
                        f"environment {number} has the action space {env.action_space}, the first one {config.action_space}: "
                        "the function that makes environments must always make the same kind"
                    )

    def _take_policy(self, policy: Behaviour) -> None:
        """Act in another way from now on, with the same fields of the record."""
        self.told, self.config, self.bound = policy, replace(self.config, policy=policy), {}

    @reaction(exploration, uses=(parameters, changed, orders, acting), effects=(transitions, episodes, infos))
    def sample(self) -> None:
        """One round."""
        if self.acting.present:
            policy, renewed = self.acting.value
            self._take_policy(policy)
            if renewed:
                self.memory = policy.memory(self.numbers)
        self.config.sample(self, self.changed.value if self.changed.present else self.parameters.value)

    def roll(self, parameters: Array) -> None:
        """Take ``steps`` steps in each environment, one after the other."""
        record = self.transitions.buffer
        # A port has the same arrays for its slots again and again, so the views of each are made once.
        slot = self.slots.get(id(record))
        if slot is None:
            slot = self.slots[id(record)] = Slot(
                record, self.config.observations, self.config.normalization, self.config.policy.fields
            )
        policy = self._policy(slot, parameters)
        afresh, watched = self.orders.value.tolist()
        envs = self.envs
        assert envs is not None
        envs.watch(watched)
        envs.begin_round(afresh)
        if afresh:
            self.memory = self.config.policy.memory(self.numbers)
        turn = Turn(self.random, self.exploration.value, self.memory, self.index, self.config.actors)
        normalizing = None if self.config.normalization is None else self.config.normalization.by(parameters)
        act, end = policy.begin(turn), policy.end
        if self.config.policy.draws:
            own = torch_stream(torch_generator(self.random))
            # As decorators: the stream is entered at each call, and left in between, where environments may draw.
            act, end = own(act), own(end)
        if self.asked:
            act = _after(envs.asking(slot.rollout, self.asked), act)
        ended = self._roll(slot, envs, act, watched, normalizing)
        self._check(slot)
        if normalizing is not None:
            normalizing.observations(slot.given_nexts, slot.nexts)
            record["rewards"] = normalizing.rewards(slot.rewards)
        end(turn)
        if ended or watched:
            try:
                self.infos.set(ended)
            except Exception as error:
                note_whose_info(error, ((number, info) for _, number, info in ended))
                raise

    @reaction(question, uses=(under_way, infos_under_way), effects=(answers, transitions, infos))
    def answer(self) -> None:
        """Ask environments for somebody who waits. It takes a tick, so that what is under way to the learner is sent again."""
        assert self.envs is not None
        self.answers.set(self.envs.ask(*self.question.value))
        if self.under_way.present:
            self.transitions.buffer[...] = self.under_way.value
        if self.infos_under_way.present:
            self.infos.set(self.infos_under_way.value)

    def _policy(self, slot: Slot, record: Array) -> BoundBehaviour:
        """The policy whose weights are views of the slot that is read at this tick, and that looks at the slot that is written."""
        # Not by __array_interface__: for a record numpy computes that in Python, and drops what is raised there, a Ctrl-C too.
        key = record.ctypes.data, id(slot)
        bound = self.bound.get(key)
        if bound is None:
            bound = self.bound[key] = record, self.config.policy.bind(record, slot.rollout)
        return bound[1]

    def _roll(
        self, slot: Slot, envs: SeededEnvs, act: Callable[[int], Array], watched: bool, normalizing: Normalizing | None
    ) -> list[StepInfo]:
        plan = self.config
        dones, timeouts = slot.record["dones"], slot.record["timeouts"]
        # The slot still has an earlier round in it.
        dones.fill(False)
        timeouts.fill(False)
        episodes = self.episodes.buffer
        episodes.fill(0)
        returns, lengths = episodes["return"], episodes["length"]
        infos: list[StepInfo] = []
        envs.rows.show(slot.first)
        envs.rows.raise_failure()
        play = envs.player.step
        for step, out in enumerate(slot.out):
            if normalizing is not None:
                normalizing.observations(_of_step(slot.given, step), _of_step(slot.observations, step))
            ended = play(act(step), out)
            for end in ended:
                row = end.row
                dones[step, row], timeouts[step, row] = True, not end.terminated
                if envs.reported(end):
                    returns[step, row], lengths[step, row] = end.total, end.length
            if watched or ended:
                infos += self._infos(step, envs, ended, watched, normalizing)
        # All at once, as to write single floats of Python's takes many times as long.
        slot.rewards[...] = np.array(envs.log.noted, np.float32).reshape(plan.steps, plan.envs)
        envs.end_round(slot.record["actions"])
        return infos

    def _infos(
        self, step: int, envs: SeededEnvs, ended: Sequence[EndedEpisode], watched: bool, normalizing: Normalizing | None
    ) -> Iterator[StepInfo]:
        """The infos to report of a step."""
        rows, steps = envs.rows, self.config.steps
        ends = {end.row: end for end in ended}
        for row in range(rows.num_envs) if watched else ends:
            number = envs.first + row
            if row not in ends:
                if row in rows.infos:
                    yield step, number, rows.infos[row]
                continue
            end = ends[row]
            info = end.info
            if watched and envs.reported(end):  # with what SB3's Monitor would add, but for the time, which is the caller's
                info.setdefault("episode", {"r": round(float(np.asarray(end.total).item()), 6), "l": end.length})
            if info:
                yield step, number, info
            if watched and step + 1 == steps:
                yield steps, number, self._seen(rows.observation(row), normalizing)

    def _seen(self, observation: Any, normalizing: Normalizing | None) -> dict[str, Array]:
        """An observation alone, as the policy sees it, by key."""
        normalization, layout = self.config.normalization, self.config.observations
        if normalization is None or normalizing is None:
            return layout.one(observation)
        seen = {key: np.empty(shape, dtype) for key, (shape, dtype) in layout.parts.items()}
        normalizing.observations(normalization.originals.one(observation), seen)
        return seen

    def _check(self, slot: Slot) -> None:
        """Refuse what would make every weight a NaN."""
        wrong = np.logical_not(np.isfinite(slot.rewards))
        if wrong.any():
            self._complain("reward", slot.rewards, wrong)
        for part in slot.floats:
            # One sum is NaN if any element is; an infinite one may be meant (and then inf - inf is to be told apart).
            with np.errstate(invalid="ignore"):
                total = part.sum(dtype=np.float64)
            if math.isnan(total):
                wrong = np.isnan(part).reshape(*part.shape[:2], -1).any(-1)
                if wrong.any():
                    self._complain("observation", None, wrong)

    def _complain(self, what: str, values: Array | None, wrong: Any) -> None:
        assert self.envs is not None
        step, row = np.argwhere(wrong)[0].tolist()
        value = "an observation with a NaN in it" if values is None else f"the {what} {values[step, row]}"
        raise ValueError(
            f"environment {self.envs.first + row} returned {value} at step {step} of this round; learning from it would spoil "
            "every weight. Look at the environment with gymnasium.utils.env_checker, or clip what it returns"
        )

    @reaction(shutdown)
    def close(self) -> None:
        """Close every environment, even if closing one fails; the first error is raised."""
        envs, self.envs = self.envs, None
        if envs is not None:
            envs.rows.close()

    # A snapshot holds what the coming rounds depend on; before the start, the reactor travels as it is.

    def __getstate__(self) -> dict[str, Any]:
        if self.envs is None:
            return self.__dict__.copy()
        told = {} if self.told is None else {"told": self.told}
        return {"random": state_of(self.random), "memory": self.memory, "envs": self.envs.saved(), **told}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "random" not in state:
            self.__dict__.update(state)
            return
        restore(self.random, state["random"])
        self.memory = state["memory"]
        if "told" in state:
            self._take_policy(state["told"])
        assert self.envs is not None
        self.envs.put_back(state["envs"])
