"""What may be asked of a cluster, what it gives, and what travels to it."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

from reactor_ray import RayNodes
from reactor_ray.platform_report import loaded_packages, platform_report, warn_of_differences
from reactor_rl import ProgramError, RunError


@pytest.mark.parametrize("wrong", [{"count": 0}, {"count": True}, {"num_cpus": 0}, {"strategy": "SOMEWHERE"}])
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ProgramError, match=str(next(iter(wrong.values())))):
        RayNodes(**wrong)


def test_a_placement_group_says_everything_itself() -> None:
    with pytest.raises(ProgramError, match="leave those out"):
        RayNodes(3, placement_group=object())


def test_machines_that_are_alike_are_no_news() -> None:
    here = platform_report(loaded_packages())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_differences(here, {"other": dict(here)})
    with pytest.warns(RuntimeWarning, match=r"other has numpy 1\.0 \(here 2"):
        warn_of_differences(here | {"numpy": "2.0"}, {"same": here | {"numpy": "2.0"}, "other": here | {"numpy": "1.0"}})
    with pytest.warns(RuntimeWarning, match=r"other has mujoco None \(here 3\.0\)"):
        warn_of_differences(here | {"mujoco": "3.0"}, {"other": {name: of for name, of in here.items() if name != "mujoco"}})


def test_nothing_imports_ray_unless_asked_for() -> None:
    pytest.importorskip("ray")
    code = "import sys, reactor_rl, reactor_rl.plugin, reactor_ray"
    for plugin, host in (
        ("reactor_gymnasium", "gymnasium"),
        ("reactor_sb3", "stable_baselines3"),
        ("reactor_pettingzoo", "pettingzoo"),
    ):
        code += f"\ntry:\n    import {host}\nexcept ImportError: pass\nelse:\n    import {plugin}"
    code += "\nprint('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("nodes", "strategy", "cpus", "labels"),
    [
        (RayNodes(3), "PACK", (1, 1), None),
        (RayNodes(3, num_cpus=8), "STRICT_SPREAD", (8, 8), "!head"),
        (RayNodes(3, num_cpus=8, strategy="PACK"), "PACK", (8, 8), None),
        (RayNodes(1, num_cpus=8), "STRICT_SPREAD", (), None),
    ],
)
def test_a_cluster_of_one_machine(
    monkeypatch: pytest.MonkeyPatch, nodes: RayNodes, strategy: str, cpus: tuple[int, ...], labels: str | None
) -> None:
    pytest.importorskip("ray")
    from reactor_ray import cluster
    from reactor_ray.cluster import Machine

    head, other = Machine("head", "head (1)", 2, True), Machine("other", "other (2)", 8, False)
    monkeypatch.setattr(cluster, "machines", lambda: [head])
    found = cluster.Bundles.of(nodes)
    assert (found.strategy, found.cpus) == (strategy, cpus)
    assert (found.selector or None) == (labels and ({"ray.io/node-id": labels},) * 2)
    monkeypatch.setattr(cluster, "machines", lambda: [head, other])
    with pytest.raises(
        RunError, match=r"the cluster has 1: .*, wait for them with RayNodes\(3, num_cpus=\.\.\., patience=\.\.\.\), or"
    ):
        cluster.Bundles.of(RayNodes(3))


@pytest.mark.parametrize("size", [1, 89_000, 300_000, 1_900_000])
def test_a_message_comes_back_in_pieces(size: int) -> None:
    pytest.importorskip("ray")
    from reactor_ray.transport import PIECE, Store, join_message

    message = [(3, None, np.arange(size, dtype=np.uint8)), (4, [1], "text")]
    packed = Store().pack(message)
    assert not packed.large and all(len(piece) <= PIECE for piece in packed.pieces)
    (number, rows, array), rest = join_message(packed.arguments)
    assert (number, rows, rest) == (3, None, (4, [1], "text"))
    assert array.tobytes() == message[0][2].tobytes()


def test_a_large_array_is_put_once_for_all_who_read_it(cluster: Any) -> None:
    import ray

    from reactor_ray.transport import LARGE, Store, join_message

    array, store = np.arange(LARGE, dtype=np.uint8), Store()
    one, other = store.pack([array, 1]), store.pack([array[:], 2])
    assert len(one.large) == 1 and one.large == other.large
    assert store.pack([array.copy()]).large != one.large
    count, *rest = other.arguments
    found, number = join_message([count, *rest[:count], *ray.get(list(other.large))])
    assert number == 2 and found.tobytes() == array.tobytes()


def test_a_bundle_for_each_other_machine(cluster: Any) -> None:
    import ray
    from ray.util.placement_group import placement_group_table

    from reactor_ray.cluster import Bundles, Reservation, join, machines

    def held(nodes: RayNodes) -> Reservation:
        return Reservation(Bundles.of(nodes), nodes)

    join()  # does nothing in a process that is part of a cluster
    home, *others = machines()
    assert home.home and home.cpus == 1 and [one.cpus for one in others] == [2, 2]
    assert Bundles.of(RayNodes()).cpus == (2, 2) and Bundles.of(RayNodes(1)).cpus == ()
    there = held(RayNodes())
    try:
        strategies = [there.options(bundle)["scheduling_strategy"] for bundle in range(2)]
        places = placement_group_table(strategies[0].placement_group)["bundles_to_node_id"]
        assert [places[number] for number in range(2)] == [one.id for one in others]
        with pytest.raises(RunError, match="2 CPUs were not there after"):
            held(RayNodes(2, num_cpus=2, patience=0.1))
    finally:
        there.release()
    with pytest.raises(RunError, match=r"nodes=4 needs 3 machines beside this one, and the cluster has 2"):
        Bundles.of(RayNodes(4))
    group = ray.util.placement_group([{"CPU": 1}] * 3, strategy="PACK")
    try:
        given = held(RayNodes(placement_group=group))
        assert [given.options(bundle)["num_cpus"] for bundle in range(3)] == [1, 1, 1]
        given.release()  # of the one who has made it, not of the run
        assert group.wait(0)
    finally:
        ray.util.remove_placement_group(group)
