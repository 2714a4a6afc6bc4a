"""The protocol between home and the nodes of a federated run, and what carries it.

A *node* is a place with workers of its own that runs a part of a program; *home*, node 0, is where the caller is. Every message
has home at one end. Home gives a node a :class:`Call`; the node does as much of it as it can and returns one :class:`Answer`.
At most one call is under way to a node at a time. A carrier moves calls and answers and looks at nothing in them.

A pass of the whole program (a tick's first one, one of its further microsteps, the startup or the shutdown reactions) is one call
to each node. What a node needs from the beginning rides on the call: boundary inputs, and what others wrote earlier and is read
there with a delay. What a node writes rides on its answer. If it needs something in the middle of the pass that is not there yet,
it answers with the number of the link that it waits for, and home goes on with it by a call ``"on"`` as soon as it has that. So a
program whose reactors on the nodes only read from home what is delayed or a boundary input (vector environments, trainers) needs
exactly one call per node and tick. Letters between two nodes go through home, which makes home the only one who must be reached,
and the calls that it has made to a node all that the state of that node follows from.

To write a carrier: on each node make a ``reactor_rl.federation.host.Host(parcel)``, in the thread or actor that will make
all its calls; hand it each call, ``host.call(call)``; bring back what that returns; at the end ``host.close(timeout)``. ``call``
never raises, whatever goes wrong in the program, and one call follows another: nothing arrives while one is being done. A plugin
offers its carrier by an entry point of the group ``reactor_rl.carriers``, whose name is what the user says as ``executor``: a
function of ``nodes`` and ``workers`` that returns a :class:`Carrier`. ``nodes`` is what the user has given to
:meth:`reactor_rl.Program.start`: an int, None, or settings that only the carrier knows; ``workers`` is an int or None. A user may
also pass a carrier itself as ``executor``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol

from reactor_rl.executor_names import NamedExecutor
from reactor_rl.failure import Failure
from reactor_rl.runtime.worker.messages import Reply

__all__ = ["Answer", "Call", "Carrier", "Command", "Content", "Letter", "LostError"]

Command = Literal["start", "first", "again", "stop", "on", "ask"]
"""Run the startup reactions; the first pass of a tick; a further microstep; the shutdown reactions; go on with the pass that waits;
answer a question between two passes."""


class Content(NamedTuple):
    """What was written of one output in one pass.

    Attributes:
        output: Its index in the whole program.
        rows: The rows that were written one by one; none of them if all of it was written.
        values: A value for each of those rows; else the array, or the object of each row, or the object. Objects are encoded.
    """

    output: int
    rows: tuple[int, ...]
    values: list[Any]


class Letter(NamedTuple):
    """What crosses on one link in one pass. ``link`` is its index among the links of the whole program."""

    link: int
    contents: tuple[Content, ...]


class Call(NamedTuple):
    """What home wants of a node.

    Attributes:
        command: What to do.
        time: The tick that begins (``"first"``), or that was the last one (``"stop"``).
        number: The number of the pass, the same on all nodes.
        letters: What has come for this node since the call before.
        question: Of ``"ask"``: the name of the question, and its argument.
    """

    command: Command
    time: int = 0
    number: int = 0
    letters: tuple[Letter, ...] = ()
    question: tuple[str, Any] | None = None


class Answer(NamedTuple):
    """What a node says to a call.

    Attributes:
        letters: What it has for others since its answer before, in the order in which it was written.
        waits: The link that it needs a letter of to go on with this pass; ``None`` if the pass is done.
        again: Whether the tick needs a further microstep.
        stop: Whether a reaction has requested a stop.
        failures: What reactions have raised in the pass, by the indices of the whole program.
        next: The next time at which something is due on this node by itself.
        replies: What its workers reply to a question.
        error: What has ended the node's part of the run, if something has, such as the death of one of its workers.
    """

    letters: tuple[Letter, ...] = ()
    waits: int | None = None
    again: bool = False
    stop: bool = False
    failures: tuple[Failure, ...] = ()
    next: int = 0
    replies: tuple[Reply, ...] = ()
    error: Failure | None = None


class LostError(Exception):
    """A carrier has lost a node. The run makes an error of it that names the node's reactors, or has the node replaced.

    Attributes:
        node: Its number.
        how: What has happened to it, as it fits behind its name: "was killed by SIGKILL".
        hung: Whether it is there, and does not answer in time.
    """

    def __init__(self, node: int, how: str, hung: bool = False) -> None:
        super().__init__(f"node {node} {how}")
        self.node, self.how, self.hung = node, how, hung


class Carrier(Protocol):
    """Where nodes live, and how calls reach them. Node 0 is home and not the carrier's business.

    Only the thread that drives the run calls it. It serves one run: :meth:`launch` comes first and once, :meth:`close` last.

    Attributes:
        name: As the user spells it, for messages and ``repr``.
        nodes: Number of nodes, home included.
        inside: The executor that home and the nodes have for their own workers.
        workers: Number of workers of each node, home's first: who divides work among all of them asks for it before the start.
    """

    name: str
    inside: NamedExecutor

    @property
    def workers(self) -> tuple[int, ...]: ...

    @property
    def nodes(self) -> int: ...

    def launch(self, parcels: Sequence[bytes]) -> None:
        """Begin to make nodes 1, 2, ... of these parcels. May return before they are up.

        Raises:
            RunError: If the nodes cannot be had.
        """

    def send(self, node: int, call: Call) -> None:
        """Give a node a call. Does not wait for what comes of it."""

    def receive(self, timeout: float) -> tuple[int, Answer]:
        """The next answer of any node that has been called, and who gives it.

        Args:
            timeout: Seconds to wait at most; 0 to look only.

        Raises:
            TimeoutError: If there is none yet.
            LostError: If one of the nodes that have been called cannot answer any more.
        """

    def replace(self, node: int) -> None:
        """Make a node of its parcel anew, in the place of one that is lost, or hangs and is to be ended; its call is forgotten.

        Raises:
            RunError: If there is no place for it.
        """

    def describe(self, node: int) -> str:
        """Where a node is, for people: a host's name or address; empty if there is nothing to say."""

    def close(self, timeout: float | None) -> None:
        """End all nodes: their ``Host.close(timeout)``, then what carries them. May be called again, also when it was interrupted.

        Args:
            timeout: Seconds for what is still going on there; ``None``: no limit.
        """
