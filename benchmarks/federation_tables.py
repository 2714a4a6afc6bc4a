"""The table of a program on machines that are far apart."""

from __future__ import annotations

from tabulated import Result, digits, table

SLOW, TRAINING = "48 environments of 1 ms", "SyncDQN, 6 actors of 32 steps"
NODES = {"reactor_rl, home and 1 node": "two nodes", "reactor_rl, home and 2 nodes": "three nodes"}
HOME = "reactor_rl, home alone"


def federation_delays(result: Result) -> str:
    """A step and a round at each delay, beside what the model says, and whether they are the same ones."""
    rows = []
    for case, found in result["cases"].items():
        steps, rounds = found[SLOW]["rates"], found[TRAINING]["rates"]
        said = result["predicted"]["seconds"][case]
        calls = {f"{found['calls'][name]:g}" for name in NODES}
        rows.append([
            case,
            _ms(found["round_trip"]["median"]),
            _ms(48 / steps[HOME]["median"]),
            *(f"{_ms(48 / steps[name]['median'])} ({_ms(said[name])})" for name in NODES),
            *(_ms(1 / rounds[name]["median"]) for name in (HOME, *NODES)),
            "the same" if len(set(found["fingerprints"].values())) == 1 else "NOT THE SAME",
            " or ".join(sorted(calls)),
        ])  # fmt: skip
    steps_of = [f"a step on {name} (model)" for name in NODES.values()]
    rounds_of = [f"a round of `SyncDQN` on {name}" for name in ("one", *NODES.values())]
    return table(
        ["a packet takes", "there and back", "a step on one", *steps_of, *rounds_of, "weights", "calls a tick, each node"], rows
    )


def _ms(seconds: float) -> str:
    return f"{digits(1e3 * seconds)} ms"
