"""The one door for plugins: everything of the engine that a plugin may use beyond :mod:`reactor_rl` itself.

A plugin imports from here and from nowhere deeper. A minor release may change these names, and its CHANGELOG says so.
"""

from reactor_rl.autotune import Choice, expected_gain, parallel_executor, settled, tick_cost
from reactor_rl.cli.commands import UsageError, open_target
from reactor_rl.drawing.draw import html_figure, html_table
from reactor_rl.errors import Failure
from reactor_rl.federation.cut import On, spread_workers
from reactor_rl.federation.in_process import transport_for
from reactor_rl.federation.node import NodeHost
from reactor_rl.federation.transport import NodeLostError, NodeReply, NodeRequest, NodeTransport
from reactor_rl.fingerprint import canonical, changed_generators, generator_states, global_random_state, new_hash
from reactor_rl.noise import NoiseKind, draw_rows, drawn_noise
from reactor_rl.optional import compiled_kernel, compiled_module, require_extra, require_module
from reactor_rl.pickling import Handed, Pickled, decode, dumps, encode, loads
from reactor_rl.runtime.guards import FORKED, POISONED, InterruptGuard, holding, when_forked
from reactor_rl.runtime.helpers import how_it_ended
from reactor_rl.runtime.launch import begin, context_named, may_start_processes, preload
from reactor_rl.runtime.limits import usable_cores
from reactor_rl.runtime.module_settings import names_modules, warn_caller
from reactor_rl.runtime.numeric_threads import one_numeric_thread
from reactor_rl.runtime.plan import aligned_zeros
from reactor_rl.runtime.run import RunOwner, Snapshot
from reactor_rl.runtime.worker.main import Reply
from reactor_rl.runtime.worker.state import WorkerState
from reactor_rl.runtime.worker_process import WorkerProcess, end_workers
from reactor_rl.schedule import DEFAULT_COST, longest_first
from reactor_rl.settings import CHOICES, Execution, ExecutorName, NamedExecutor, checked_number
from reactor_rl.topology import Topology
from reactor_rl.trace import Tracing
from reactor_rl.unmodified import Code, Watch, code_of, fingerprint, library_class, reason, unmodified
from reactor_rl.verify import Target

__all__ = [
    "NodeReply",
    "NodeRequest",
    "NodeTransport",
    "NodeHost",
    "NodeLostError",
    "NoiseKind",
    "draw_rows",
    "drawn_noise",
    "On",
    "transport_for",
    "checked_number",
    "spread_workers",
    "CHOICES",
    "Choice",
    "DEFAULT_COST",
    "FORKED",
    "InterruptGuard",
    "POISONED",
    "Execution",
    "ExecutorName",
    "Failure",
    "Handed",
    "NamedExecutor",
    "WorkerState",
    "Pickled",
    "RunOwner",
    "Reply",
    "how_it_ended",
    "Snapshot",
    "WorkerProcess",
    "end_workers",
    "Target",
    "Topology",
    "Tracing",
    "UsageError",
    "aligned_zeros",
    "begin",
    "Code",
    "Watch",
    "canonical",
    "code_of",
    "fingerprint",
    "library_class",
    "reason",
    "unmodified",
    "html_figure",
    "compiled_kernel",
    "context_named",
    "decode",
    "dumps",
    "encode",
    "expected_gain",
    "compiled_module",
    "generator_states",
    "global_random_state",
    "holding",
    "names_modules",
    "warn_caller",
    "loads",
    "longest_first",
    "may_start_processes",
    "changed_generators",
    "require_extra",
    "require_module",
    "new_hash",
    "one_numeric_thread",
    "parallel_executor",
    "preload",
    "settled",
    "open_target",
    "html_table",
    "tick_cost",
    "usable_cores",
    "when_forked",
]
