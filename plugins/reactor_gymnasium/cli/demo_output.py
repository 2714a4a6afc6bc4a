"""What the demo prints."""

from __future__ import annotations

from reactor_gymnasium.cli.rollout import Rollout

__all__ = ["print_fingerprints", "print_lines", "print_table"]


def print_lines(*lines: str) -> None:
    """Print some lines."""
    for line in lines:
        print(line)


def print_table(job: Rollout, speeds: dict[str, float]) -> None:
    """Print steps per second, and how many times as fast ReactorVectorEnv is."""
    ours = speeds["ReactorVectorEnv"]
    print(f"\n{job.num_envs} x {job.id:<22} steps/s   ReactorVectorEnv is")
    for name, speed in speeds.items():
        ratio = "" if name == "ReactorVectorEnv" else f"{ours / speed:8.2f} x as fast"
        print(f"  {name:<22} {speed:>12,.0f}   {ratio}".rstrip())


def print_fingerprints(job: Rollout, fingerprints: dict[int, str]) -> bool:
    """Print one fingerprint per number of workers. Returns whether they are the same."""
    print(f"\n{job.num_envs} x {job.id}: fingerprint of 100 steps")
    for workers, fingerprint in fingerprints.items():
        print(f"  {workers} worker(s)  {fingerprint}")
    same = len(set(fingerprints.values())) == 1
    print("  all the same" if same else "  THEY DIFFER")
    return same
