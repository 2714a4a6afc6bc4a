"""How a process gets to a cluster."""

from __future__ import annotations

import pytest

from reactor_rl import Program, ProgramError


def test_ray_client_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", "ray://somewhere:10001")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    for _ in range(2):
        with pytest.raises(ProgramError, match=r"RAY_ADDRESS=auto or as a job \(ray job submit\)"):
            Program("nothing").start(executor="ray")
        monkeypatch.setattr(ray, "is_initialized", lambda: True)
        monkeypatch.setattr(ray.util.client.ray, "is_connected", lambda: True)
