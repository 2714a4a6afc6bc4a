"""How a process gets to a cluster: the one of ``RAY_ADDRESS``, or one that is started for it and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reactor_rl import Program, ProgramError

SCRIPT = '''
import os, time
import numpy as np
from reactor_rl import Input, Output, Program, Reactor, reaction


class Double(Reactor):
    """Of __main__, so it travels by value."""

    x = Input()
    y = Output((2,), np.int64)

    @reaction(x, effects=y)
    def double(self):
        self.y.set([2 * int(self.x.value), os.getpid()])


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    program = Program("double")
    double = program.add(Double, name="double")
    program.connect(program.input("x"), double.x)
    program.connect(double.y, program.output("y"))
    with program.start(executor="ray", nodes=2, workers=1, on={"double": 1}) as run:
        run.set(x=21)
        run.tick()
        found, pid = run.y.tolist()
    import ray

    from reactor_ray.cluster import machines

    print(found, pid != os.getpid(), len(machines()))
    ray.shutdown()
    end = time.monotonic() + 20.0
    children = f"/proc/self/task/{os.getpid()}/children"
    while time.monotonic() < end and (alive(pid) or open(children).read()):
        time.sleep(0.05)
    print(alive(pid), open(children).read())
'''


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("machines", "where"), [(1, "here"), (3, "there")])
def test_a_script(cluster: Any, tmp_path: Path, machines: int, where: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    environment.pop("RAY_ADDRESS", None)
    if where == "there":
        environment["RAY_ADDRESS"] = cluster.address
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.strip() for line in done.stdout.splitlines()[-2:]] == [f"42 True {machines}", "False"], done.stdout


def test_ray_client_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", "ray://somewhere:10001")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    for _ in range(2):
        with pytest.raises(ProgramError, match=r"RAY_ADDRESS=auto or as a job \(ray job submit\)"):
            Program("nothing").start(executor="ray")
        monkeypatch.setattr(ray, "is_initialized", lambda: True)
        monkeypatch.setattr(ray.util.client.ray, "is_connected", lambda: True)
