"""The tables of a program on several machines."""

from __future__ import annotations

from tabulated import Result, digits, table

SLOW, QUICK, TRAINING = "48 environments of 1 ms", "48 CartPole-v1", "SyncDQN, 6 actors of 32 steps"
NODES = {"reactor_rl, home and 1 node": "two nodes", "reactor_rl, home and 2 nodes": "three nodes"}
HOME = "reactor_rl, home alone"


def federation(result: Result) -> str:
    """What a step of all environments and a round of training take on so many nodes, and what a tick of them sends."""
    cases = result["cases"]
    rows = []
    for name, items in ((SLOW, 48), (QUICK, 48), (TRAINING, 1)):
        seconds = {one: items / rate["median"] for one, rate in cases[name]["rates"].items()}
        sent = cases["traffic"].get(name)
        per_tick = f"{sent['calls']:g}; {sent['out'] / 1e3:.1f} kB there, {sent['in'] / 1e3:.1f} kB back" if sent else "-"
        rows.append([name, *(_ms(seconds[one]) if one in seconds else "-" for one in ("SyncVectorEnv", HOME, *NODES)), per_tick])
    return table(
        ["", "`SyncVectorEnv`", "home alone", *(f"on {name}" for name in NODES.values()), "calls and bytes of a tick, each node"],
        rows,
    )


def federation_predicted(result: Result) -> str:
    """How many times as fast as one node, by the model."""
    found = result["cases"]["prediction"]
    rows = []
    for work, speed in found["speed"].items():
        most = found["most_nodes"][work]
        rows.append([f"{work} s", *(f"{times:.3g}x" for times in speed.values()), f"{most:.0f}" if most else "-"])
    _, *more = next(iter(found["speed"].values()))
    return table(["work in a tick", "1 node", *(f"{count} nodes" for count in more), "fastest with"], rows)


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
