"""Carries a federated run on Ray: each node beside home is an actor, each message the arguments or the results of one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reactor_ray.cluster import join, machines
from reactor_ray.likeness import described, loaded_packages, warn_of_differences
from reactor_ray.node_actor import NodeActor
from reactor_ray.nodes import RayNodes, nodes_of
from reactor_ray.parcels import Store, pieces_of, whole
from reactor_ray.reservation import Bundles, Reservation
from reactor_rl.plugin import Answer, Call, LostError, NamedExecutor, loads, needs, parallel_executor, usable_cores

with needs("ray", 'executor="ray"'):
    import ray
    from ray.exceptions import ActorUnavailableError, RayActorError, RayError, RayTaskError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

__all__ = ["RayCarrier"]


class RayCarrier:
    """The carrier of ``executor="ray"``.

    Args:
        nodes: How many, home included, or which; see :class:`reactor_ray.RayNodes`.
        workers: Number of workers of each node, home included; ``None`` for the CPUs that each has.

    Raises:
        ProgramError: If the cluster cannot be joined like this.
        RunError: If it does not have what is asked for.
    """

    name = "ray"

    def __init__(self, nodes: int | RayNodes | None = None, workers: int | None = None) -> None:
        self._nodes = nodes_of(nodes)
        join()
        self._bundles = Bundles.of(self._nodes)
        self.inside: NamedExecutor = parallel_executor()
        self.workers = tuple(workers or cpus for cpus in (usable_cores(), *self._bundles.cpus))
        self._held: Reservation | None = None
        self._parcels: list[Any] = []
        self._actors: dict[int, Any] = {}
        self._where: dict[int, Any] = {}  # what each node says of itself, until somebody looks at it
        self._homes: dict[int, str] = {}  # Ray's identifier of each node's machine
        self._names: dict[str, str] = {}
        self._doubtful: set[str] = set()  # machines that have stopped answering
        self._called: dict[int, list[Any]] = {}  # what each answer consists of
        self._results: dict[int, int] = {}  # in how many pieces each node answers
        self._store = Store()

    @property
    def nodes(self) -> int:
        """Number of nodes, home included."""
        return len(self.workers)

    def launch(self, parcels: Sequence[bytes]) -> None:
        """Begin to make the nodes of these parcels."""
        if not parcels:
            return
        self._held = Reservation(self._bundles, self._nodes)
        self._names = {one.id: one.name for one in machines()}
        self._parcels = list(parcels)
        for node in range(1, self.nodes):
            self._make(node, self._held.options(node - 1))

    def _make(self, node: int, options: dict[str, Any]) -> None:
        if self._nodes.runtime_env is not None:
            options["runtime_env"] = dict(self._nodes.runtime_env)
        actor = ray.remote(NodeActor).options(max_restarts=0, max_task_retries=0, **options).remote()
        self._actors[node], self._results[node] = actor, 1
        self._where[node] = actor.where.remote(loaded_packages())
        actor.open.remote(self._parcels[node - 1])

    def send(self, node: int, call: Call) -> None:
        """Give a node a call."""
        if not self._called:  # of another pass, or a later moment of it, when arrays may have other values
            self._store = Store()
        results, arguments = self._results[node], self._store.pack(call).arguments
        found = self._actors[node].call.options(num_returns=results).remote(results, *arguments)
        self._called[node] = found if results > 1 else [found]

    def receive(self, timeout: float) -> tuple[int, Answer]:
        """The next answer of any node that has been called."""
        self._look()
        first = {pieces[0]: node for node, pieces in self._called.items()}
        ready, _ = ray.wait(list(first), timeout=timeout)
        if not ready:
            raise TimeoutError
        node = first[ready[0]]
        pieces = self._called.pop(node)
        data = whole(self._got(node, pieces))
        self._results[node] = len(pieces_of(data))
        return node, loads(data)

    def _look(self) -> None:
        """Learn what new nodes say of themselves, and compare it."""
        if self._where:
            told = {node: self._got(node, self._where.pop(node)) for node in list(self._where)}
            self._homes |= {node: home for node, (home, _) in told.items()}
            warn_of_differences(described(loaded_packages()), {self._told(node): found for node, (_, found) in told.items()})

    def _got(self, node: int, wanted: Any) -> Any:
        try:
            return ray.get(wanted)
        except RayTaskError:  # a mistake of this package, or of what it is told to load
            raise
        except RayError as error:
            if isinstance(error, ActorUnavailableError):  # nobody has been told yet what there is no answer from
                self._doubtful.add(self._homes.get(node, ""))
            raise LostError(node, _how(error)) from error

    def replace(self, node: int) -> None:
        """Make a node anew: with its CPUs if its machine is there still, else where there are the fewest nodes of this run."""
        assert self._held is not None
        ray.kill(self._actors.pop(node))
        for waiting in (self._called, self._where):
            waiting.pop(node, None)
        home, alive = self._homes.pop(node, None), [one for one in machines() if one.id not in self._doubtful]
        if home in [one.id for one in alive]:
            self._make(node, self._held.options(node - 1))
            return
        taken = list(self._homes.values())
        best = min(alive, key=lambda one: (one.home, taken.count(one.id)))
        self._make(node, {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(best.id, soft=False)})

    def describe(self, node: int) -> str:
        """The name of a node's machine."""
        return self._names.get(self._homes.get(node, ""), "")

    def _told(self, node: int) -> str:
        return f"node {node} on {self.describe(node)}"

    def close(self, timeout: float | None) -> None:
        """End all nodes."""
        if ray.is_initialized():
            # Who is called still does not get so far, and a call that ends well is not to be cut short.
            ending = [actor.close.remote(timeout) for node, actor in self._actors.items() if node not in self._called]
            if ending:
                ray.wait(ending, num_returns=len(ending), timeout=timeout)
            while self._actors:
                ray.kill(self._actors.popitem()[1])
            if self._held is not None:
                self._held.release()
        self._called.clear()
        self._where.clear()
        self._held = None


def _how(error: RayError) -> str:
    """What has become of an actor, in a few words; Ray takes many."""
    if isinstance(error, ActorUnavailableError):
        return "does not answer any more: its machine has failed, or cannot be reached"
    if isinstance(error, RayActorError) and error.actor_init_failed:
        return f"could not be started: {str(error).strip().splitlines()[-1].strip()}"
    told = " ".join(str(error).split())
    detail = told.partition("Worker exit detail:")[2].partition("Some common causes")[0].strip()
    return f"has died: {(detail or told).rstrip('.')}"
