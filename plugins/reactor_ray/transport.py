"""A federated run on Ray: each node beside home is an actor, each request and its reply one call of it.

Ray sends what is below 100 KiB along with a call, and takes the rest through its object store, which costs some ten times a call.
So a message is one pickle, cut into pieces that go along with the call; that wins up to about two megabytes. Larger arrays are put
into the store, once for all who read them.
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from reactor_ray.cluster import Bundles, Reservation, join, machines
from reactor_ray.nodes import RayNodes, as_ray_nodes
from reactor_ray.platform_report import loaded_packages, platform_report, warn_of_differences
from reactor_rl.plugin import (
    NamedExecutor,
    NodeHost,
    NodeLostError,
    NodeReply,
    NodeRequest,
    dumps,
    loads,
    parallel_executor,
    require_extra,
    usable_cores,
)  # fmt: skip

with require_extra("ray", 'executor="ray"'):
    import ray
    from ray.exceptions import ActorUnavailableError, RayActorError, RayError, RayTaskError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

__all__ = ["LARGE", "PIECE", "ChunkedMessage", "NodeActor", "RayTransport", "Store", "join_chunks", "join_message"]

PIECE = 90_000
"""Bytes of a piece: below Ray's ``max_direct_call_object_size`` of 100 KiB, whatever it adds."""
LARGE = 2_000_000
"""Bytes of an array from which on it goes through the object store. Below it, pieces within calls are faster; a node that gets the
same array more than once gets it from the store once (docs/guide/cluster-costs.md).
"""


class ChunkedMessage(NamedTuple):
    """A message as it travels.

    Attributes:
        pieces: Of its pickle, one after the other.
        large: What holds its large arrays, in order: references when sent, the arrays' bytes when it has come.
    """

    pieces: tuple[bytes, ...]
    large: tuple[Any, ...]

    @property
    def arguments(self) -> tuple[Any, ...]:
        """For a call: how many pieces there are, and all of it. Ray exchanges references for what they stand for."""
        return len(self.pieces), *self.pieces, *self.large


class Store:
    """Large arrays of one tick, each put into the object store once."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], tuple[Any, Any]] = {}  # the arrays too, lest others come to lie where they were

    def pack(self, message: Any) -> ChunkedMessage:
        """A message for somebody, whose large arrays may be those of messages for others."""
        large: list[Any] = []

        def in_band(buffer: pickle.PickleBuffer) -> bool:
            raw = np.frombuffer(buffer.raw(), np.uint8)
            if raw.nbytes < LARGE:
                return True
            large.append(self._reference(raw))
            return False

        data = pickle.dumps(message, protocol=5, buffer_callback=in_band)
        return ChunkedMessage(chunks_of(data), tuple(large))

    def _reference(self, raw: np.ndarray[Any, Any]) -> Any:
        key = (raw.ctypes.data, raw.nbytes)
        if key not in self._kept:
            self._kept[key] = ray.put(raw), raw
        return self._kept[key][0]


def chunks_of(data: bytes) -> tuple[bytes, ...]:
    """Cut a pickle, which has one piece at least; one that is too long for that to pay stays whole."""
    if not PIECE < len(data) < LARGE:
        return (data,)
    return tuple(data[at : at + PIECE] for at in range(0, len(data), PIECE))


def split_reply(data: bytes, results: int) -> Any:
    """A reply as that many results of a call, the last ones empty if it is shorter, and the last one long if it is longer."""
    pieces = chunks_of(data)
    if results == 1:
        return data
    if len(pieces) > results:
        return *pieces[: results - 1], b"".join(pieces[results - 1 :])
    return *pieces, *(b"" for _ in range(results - len(pieces)))


def join_chunks(pieces: Sequence[bytes]) -> bytes:
    """The reply again."""
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def join_message(arguments: Sequence[Any]) -> Any:
    """The message, from :attr:`ChunkedMessage.arguments` as they arrive."""
    count, *rest = arguments
    pieces, large = rest[:count], rest[count:]
    return pickle.loads(join_chunks(pieces), buffers=large)


class NodeActor:
    """A process on another machine that hosts a node; Ray makes all calls in its main thread, one after the other."""

    _host: NodeHost | None = None

    def where(self, packages: Sequence[str]) -> tuple[str, dict[str, str]]:
        """Ray's identifier of the machine, and what results of it depend on."""
        return ray.get_runtime_context().get_node_id(), platform_report(packages)

    def open(self, config: bytes) -> None:
        """Take what the node is made of."""
        self._host = NodeHost(config)

    def call(self, results: int, *arguments: Any) -> Any:
        """Do what home wants, and reply in so many pieces."""
        assert self._host is not None
        return split_reply(dumps(self._host.handle(join_message(arguments))), results)

    def close(self, timeout: float | None) -> None:
        """End the node's workers."""
        if self._host is not None:
            self._host.close(timeout)
            self._host = None
            gc.collect()  # Ray ends processes by a signal, in which nothing is to be torn down


class RayTransport:
    """The transport of ``executor="ray"``.

    Args:
        nodes: How many, home included, or which; see :class:`reactor_ray.RayNodes`.
        workers: Number of workers of each node, home included; ``None`` for the CPUs that each has.

    Raises:
        ProgramError: If the cluster cannot be joined like this.
        RunError: If it does not have what is asked for.
    """

    name = "ray"

    def __init__(self, nodes: int | RayNodes | None = None, workers: int | None = None) -> None:
        self._nodes = as_ray_nodes(nodes)
        join()
        self._bundles = Bundles.of(self._nodes)
        self.inside: NamedExecutor = parallel_executor()
        self.workers = tuple(workers or cpus for cpus in (usable_cores(), *self._bundles.cpus))
        self._held: Reservation | None = None
        self._configs: list[Any] = []
        self._actors: dict[int, Any] = {}
        self._where: dict[int, Any] = {}  # what each node says of itself, until somebody looks at it
        self._machines: dict[int, str] = {}  # Ray's identifier of each node's machine
        self._names: dict[str, str] = {}
        self._doubtful: set[str] = set()  # machines that have stopped answering
        self._called: dict[int, list[Any]] = {}  # what each reply consists of
        self._results: dict[int, int] = {}  # in how many pieces each node replies
        self._store = Store()

    @property
    def nodes(self) -> int:
        """Number of nodes, home included."""
        return len(self.workers)

    def launch(self, configs: Sequence[bytes]) -> None:
        """Begin to make the nodes of these configs."""
        if not configs:
            return
        self._held = Reservation(self._bundles, self._nodes)
        self._names = {one.id: one.name for one in machines()}
        self._configs = list(configs)
        for node in range(1, self.nodes):
            self._make(node, self._held.options(node - 1))

    def _make(self, node: int, options: dict[str, Any]) -> None:
        if self._nodes.runtime_env is not None:
            options["runtime_env"] = dict(self._nodes.runtime_env)
        # Ray must neither restart it nor repeat a call: its state would be lost, and a tick would be done twice. The run replaces
        # it.
        actor = ray.remote(NodeActor).options(max_restarts=0, max_task_retries=0, **options).remote()
        self._actors[node], self._results[node] = actor, 1
        self._where[node] = actor.where.remote(loaded_packages())
        actor.open.remote(self._configs[node - 1])

    def send(self, node: int, request: NodeRequest) -> None:
        """Give a node a request."""
        if not self._called:  # of another pass, or a later moment of it, when arrays may have other values
            self._store = Store()
        results, arguments = self._results[node], self._store.pack(request).arguments
        found = self._actors[node].call.options(num_returns=results).remote(results, *arguments)
        self._called[node] = found if results > 1 else [found]

    def receive(self, timeout: float) -> tuple[int, NodeReply]:
        """The next reply of any node that has been called."""
        self._look()
        first = {pieces[0]: node for node, pieces in self._called.items()}
        ready, _ = ray.wait(list(first), timeout=timeout)
        if not ready:
            raise TimeoutError
        node = first[ready[0]]
        pieces = self._called.pop(node)
        data = join_chunks(self._got(node, pieces))
        # As many pieces as this time: replies of one node are about as long each tick.
        self._results[node] = len(chunks_of(data))
        return node, loads(data)

    def _look(self) -> None:
        """Learn what new nodes say of themselves, and compare it."""
        if self._where:
            told = {node: self._got(node, self._where.pop(node)) for node in list(self._where)}
            self._machines |= {node: machine for node, (machine, _) in told.items()}
            warn_of_differences(platform_report(loaded_packages()), {self._told(node): found for node, (_, found) in told.items()})

    def _got(self, node: int, wanted: Any) -> Any:
        try:
            return ray.get(wanted)
        except RayTaskError:  # a mistake of this package, or of what it is told to load
            raise
        except RayError as error:
            if isinstance(error, ActorUnavailableError):  # nobody has been told yet whose reply there is not
                self._doubtful.add(self._machines.get(node, ""))
            raise NodeLostError(node, _how(error)) from error

    def replace(self, node: int) -> None:
        """Make a node anew: with its CPUs if its machine is there still, else where there are the fewest nodes of this run."""
        assert self._held is not None
        ray.kill(self._actors.pop(node))
        for waiting in (self._called, self._where):
            waiting.pop(node, None)
        machine, alive = self._machines.pop(node, None), [one for one in machines() if one.id not in self._doubtful]
        if machine in [one.id for one in alive]:
            self._make(node, self._held.options(node - 1))
            return
        taken = list(self._machines.values())
        best = min(alive, key=lambda one: (one.home, taken.count(one.id)))
        self._make(node, {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(best.id, soft=False)})

    def describe(self, node: int) -> str:
        """The name of a node's machine."""
        return self._names.get(self._machines.get(node, ""), "")

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
    """An actor's fate in a few words; Ray takes many."""
    if isinstance(error, ActorUnavailableError):
        return "does not answer any more: its machine has failed, or cannot be reached"
    if isinstance(error, RayActorError) and error.actor_init_failed:
        return f"could not be started: {str(error).strip().splitlines()[-1].strip()}"
    told = " ".join(str(error).split())
    detail = told.partition("Worker exit detail:")[2].partition("Some common causes")[0].strip()
    return f"has died: {(detail or told).rstrip('.')}"
