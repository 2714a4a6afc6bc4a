"""What does the picture cost that a step of an Atari game ends with, and who makes it fastest?

Microseconds per finished frame (two screens seen, the larger of both scaled down to 84 x 84), without the emulator's own time, in
play with random actions and where every pixel changes. All contenders make the same frames, bit for bit, which is checked first.
``start``: seconds until the first frame, imports and compilation included, in fresh interpreters.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from common import Contender, arguments, interleaved, rounds_of, run_cases, summary, write_json
from showing import print_table

GAMES = {"Pong": "pong", "Breakout": "breakout", "SpaceInvaders": "space_invaders"}
WORST = "every pixel changes"
EMULATOR = "the emulator, 4 frames"
KINDS = ("reactor_rl, AVX2", "reactor_rl, portable C", "numba", "OpenCV")


class Noise:
    """An emulator whose screens have nothing in common."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.screens = (rng.integers(0, 128, (7, 210, 160)) * 2).astype(np.uint8)
        self.grey_of = rng.integers(0, 255, 256).astype(np.uint8)
        self.greys = self.grey_of[self.screens]
        self.number = 0

    def act(self, action: int) -> None:
        self.number = (self.number + 1) % len(self.screens)

    def game_over(self) -> bool:
        return False

    def getMinimalActionSet(self) -> list[int]:  # noqa: N802
        return [0]

    def getScreenDims(self) -> tuple[int, int]:  # noqa: N802
        return 210, 160

    def getScreen(self, out: Any) -> None:  # noqa: N802
        np.copyto(out, self.screens[self.number])

    def getScreenGrayscale(self, out: Any) -> None:  # noqa: N802
        np.copyto(out, self.greys[self.number])


def emulator(game: str) -> Any:
    if game == WORST:
        return Noise()
    from ale_py import ALEInterface, LoggerMode, roms

    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale = ALEInterface()
    ale.setInt("random_seed", 0)
    ale.loadROM(roms.get_rom_path(GAMES[game]))
    ale.reset_game()
    return ale


@cache
def numba_functions() -> tuple[Callable[..., bool], Callable[..., None]]:
    """The compiled kernel's method, in Python for Numba."""
    import numba

    @numba.njit(cache=True)
    def see(screen, words, raw, raw_words, grey, current, role, changed, known, grey_of):  # type: ignore[no-untyped-def]
        for band in range(42):
            different = np.uint64(0)
            for i in range(band * 100, band * 100 + 100):
                different |= words[i] ^ raw_words[role, i]
            if current[role] and not different:
                continue
            all_known = True
            for i in range(band * 800, band * 800 + 800):
                all_known &= known[screen[i]]
                grey[role, i] = grey_of[screen[i]]
                raw[role, i] = screen[i]
            if not all_known:
                current[role] = False
                return False
            changed[band] = True
        current[role] = True
        return True

    @numba.njit(cache=True)
    def finish(grey, pooled, changed, start, across, down, finished, out):  # type: ignore[no-untyped-def]
        sums = np.empty((5, 84), np.float32)
        for band in range(42):
            if not changed[band]:
                continue
            changed[band] = False
            for i in range(band * 800, band * 800 + 800):
                pooled[i] = max(grey[0, i], grey[1, i])
            for row in range(5):
                for x in range(84):
                    at = (5 * band + row) * 160 + start[x]
                    total = np.float32(pooled[at]) * across[0, x]
                    total += np.float32(pooled[at + 1]) * across[1, x]
                    total += np.float32(pooled[at + 2]) * across[2, x]
                    sums[row, x] = total
            for y in range(2):
                for x in range(84):
                    total = sums[2 * y, x] * down[0, y]
                    total += sums[2 * y + 1, x] * down[1, y]
                    total += sums[2 * y + 2, x] * down[2, y]
                    finished[2 * band + y, x] = np.uint8(np.int32(np.rint(total)))
        out[:] = finished

    return see, finish


def weights(sources: int, targets: int, count: int) -> tuple[Any, Any]:
    """The first source of each target and the weights of three, as OpenCV computes them."""
    scale = 1.0 / (targets / sources)
    start, shares = np.zeros(count, np.int64), np.zeros((3, count), np.float32)
    for target in range(count):
        left, right = target * scale, (target + 1) * scale
        cell = min(scale, sources - left)
        parts = [(at, min(right, at + 1) - max(left, at)) for at in range(int(left), min(int(right) + 1, sources))]
        kept = [(at, part) for at, part in parts if part > 1e-3]
        start[target] = kept[0][0]
        shares[: len(kept), target] = [part / cell for _, part in kept]
    return start, shares


class NumbaFrames:
    """Whole steps only: what early breaks need is left out."""

    def __init__(self, ale: Any) -> None:
        self.see, self.scale = numba_functions()
        self.ale, self.screen = ale, np.zeros((210, 160), np.uint8)
        self.grey_screen = np.zeros_like(self.screen)
        self.flat = self.screen.reshape(-1)
        start, across = weights(160, 84, 84)
        _, down = weights(210, 84, 2)
        self.raw, self.grey, changed = np.zeros((2, 33600), np.uint8), np.zeros((2, 33600), np.uint8), np.ones(42, np.bool_)
        self.known, self.grey_of = np.zeros(256, np.bool_), np.zeros(256, np.uint8)
        self.current = np.zeros(2, np.bool_)
        self.seen = (self.flat, self.flat.view(np.uint64), self.raw, self.raw.view(np.uint64), self.grey, self.current)
        self.palette = (changed, self.known, self.grey_of)
        pooled, finished = np.zeros(33600 + 32, np.uint8), np.zeros((84, 84), np.uint8)
        self.made = (self.grey, pooled, changed, start, across, down, finished)

    def restart(self) -> None:
        self.grey[1], self.current[1] = 0, False
        self.palette[0][:] = True
        self.see_last()

    def see_first(self) -> None:
        self._see(1)

    def see_last(self) -> None:
        self._see(0)

    def _see(self, role: int) -> None:
        self.ale.getScreen(self.screen)
        if not self.see(*self.seen, role, *self.palette):
            self.ale.getScreenGrayscale(self.grey_screen)
            self.grey_of[self.flat] = self.grey_screen.reshape(-1)
            self.known[self.flat] = True
            self.see(*self.seen, role, *self.palette)

    def finish(self, out: Any) -> None:
        self.scale(*self.made, out)


def frames(kind: str, ale: Any) -> Any:
    if kind == "numba":
        return NumbaFrames(ale)
    from reactor_gymnasium.atari import game as module

    if kind == "OpenCV":
        return module.OpenCVFrames(ale, 84, 84, True, True)
    if module._frames is None:
        raise NotImplementedError("the extension is not compiled here")
    if kind == "reactor_rl, AVX2" and not module._frames.AVX2:
        raise NotImplementedError("no AVX2 here")
    return module.CompiledFrames(ale, avx2=kind == "reactor_rl, AVX2")


class Play(Contender):
    """Random actions for ever. What is timed is making the frames, or the emulator."""

    def __init__(self, kind: str, game: str) -> None:
        self.ale, self.of_emulator = emulator(game), kind == EMULATOR
        self.frames = frames("OpenCV" if self.of_emulator else kind, self.ale)
        self.out = np.zeros((84, 84), np.uint8)
        self.actions = self.ale.getMinimalActionSet()
        self.rng = np.random.default_rng(0)
        self.frames.restart()
        if not self.of_emulator:
            self.check()

    def timed(self, count: int) -> tuple[float, float]:
        acting = making = 0
        ale, made, out, clock = self.ale, self.frames, self.out, time.perf_counter_ns
        for choice in self.rng.integers(0, len(self.actions), count).tolist():
            if ale.game_over():
                ale.reset_game()
                made.restart()
            action = self.actions[choice]
            begin = clock()
            ale.act(action)
            ale.act(action)
            ale.act(action)
            third = clock()
            made.see_first()
            first = clock()
            ale.act(action)
            fourth = clock()
            made.see_last()
            made.finish(out)
            end = clock()
            acting += third - begin + fourth - first
            making += first - third + end - fourth
        return count, (acting if self.of_emulator else making) / 1e9

    def check(self) -> None:
        """See that the frames are OpenCV's."""
        other, expected = frames("OpenCV", self.ale), np.zeros_like(self.out)
        other.restart()
        for _ in range(200):
            self.ale.act(self.actions[-1])
            self.frames.see_first()
            other.see_first()
            self.ale.act(self.actions[-1])
            self.frames.see_last()
            other.see_last()
            self.frames.finish(self.out)
            other.finish(expected)
            if not np.array_equal(self.out, expected):
                raise RuntimeError(f"{self.frames!r} makes other frames than OpenCV")


def first_frame(kind: str) -> dict[str, float]:
    """Seconds until the first frame; run in a fresh interpreter."""
    import reactor_gymnasium  # noqa: F401  (imported in any case)

    ale, out = emulator("Pong"), np.zeros((84, 84), np.uint8)
    begin = time.perf_counter()
    made = frames(kind, ale)
    made.restart()
    made.finish(out)
    return {"seconds": time.perf_counter() - begin}


def start(rounds: int) -> dict[str, Any]:
    seconds: dict[str, list[float]] = {}
    skipped: dict[str, str] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            for name in (*KINDS, "numba, from its cache"):
                command = [sys.executable, __file__, "--case", "first frame: " + name.partition(", from")[0]]
                environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
                done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
                if done.returncode:
                    skipped[name] = done.stderr.strip().splitlines()[-1]
                else:
                    seconds.setdefault(name, []).append(json.loads(done.stdout.rpartition("@@")[2])["seconds"])
    return {"ms_to_first_frame": {name: summary([1e3 * one for one in all_]) for name, all_ in seconds.items()}, "skipped": skipped}


def installed() -> dict[str, float]:
    """Megabytes of what each kind needs."""
    from reactor_gymnasium.atari import game as module

    found = {}
    if module._frames is not None and module._frames.__file__:
        found["reactor_rl"] = os.path.getsize(module._frames.__file__) / 1e6
    for name, packages in {"numba": ("numba", "llvmlite"), "OpenCV": ("opencv-python-headless",)}.items():
        try:
            files = [file for one in packages for file in importlib.metadata.files(one) or []]
        except importlib.metadata.PackageNotFoundError:
            continue
        paths = [file.locate() for file in files]
        found[name] = sum(os.path.getsize(path) for path in paths if os.path.exists(path)) / 1e6
    return found


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    if case.startswith("first frame: "):
        return dict(first_frame(case.partition(": ")[2]))
    if case == "start":
        return {**start(rounds_of(options)), "megabytes": installed()}
    kinds = KINDS if case == WORST else (*KINDS, EMULATOR)
    builders = {kind: partial(Play, kind, case) for kind in kinds}
    figures = interleaved(builders, rounds=rounds_of(options), seconds=0.0, fixed=400 if options.quick else 2000)
    us = {name: summary([1e6 / rate for rate in rates]) for name, rates in figures.rates.items()}
    return {"us_per_frame": us, "skipped": figures.skipped}


def show(name: str, found: dict[str, Any]) -> None:
    unit = "ms to the first frame" if name == "start" else "us per frame"
    rows = [
        [one, f"{value['median']:,.1f}", f"{value['min']:,.1f}-{value['max']:,.1f}"]
        for one, value in (found.get("ms_to_first_frame") or found.get("us_per_frame") or {}).items()
    ]
    print_table(name, ["", unit, "min-max"], rows + [[one, "skipped", why] for one, why in found.get("skipped", {}).items()])
    if "megabytes" in found:
        print_table("installed", ["", "MB"], [[one, f"{size:,.2f}"] for one, size in found["megabytes"].items()])


def main() -> None:
    options = arguments(__doc__).parse_args()
    cases = run_cases(__file__, options, [*GAMES, WORST, "start"], measure, show=show)
    if cases is None:
        return
    versions = {}
    for name in ("opencv-python-headless", "numba"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    write_json(options, "frames", cases, versions=versions)
    games = [found["us_per_frame"] for name, found in cases.items() if name in GAMES and "us_per_frame" in found]
    if games:
        both = [kind for kind in KINDS if all(kind in found for found in games)]
        means = ", ".join(f"{kind} {statistics.mean(found[kind]['median'] for found in games):.1f}" for kind in both)
        print(f"mean of the games, us per frame: {means}")


if __name__ == "__main__":
    main()
