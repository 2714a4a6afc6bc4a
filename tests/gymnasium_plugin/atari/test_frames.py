"""Finished Atari frames: every implementation gives exactly what the rule of two frames gives, and ALE's vector environment."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from reactor_gymnasium.atari import game as module
from reactor_gymnasium.atari.game import ColourFrames, CompiledFrames, Frames, OpenCVFrames, frames_of

cv2 = pytest.importorskip("cv2", reason="opencv-python-headless is not installed: it is the reference")

Bytes = npt.NDArray[np.uint8]

KERNEL = module._frames
NO_KERNEL = pytest.mark.skipif(KERNEL is None, reason="the extension is not compiled here")
NO_AVX2 = pytest.mark.skipif(KERNEL is None or not KERNEL.AVX2, reason="no extension, or no AVX2 in this processor")
KINDS = ["opencv", pytest.param("portable", marks=NO_KERNEL), pytest.param("avx2", marks=NO_AVX2)]
PIECES = {"step": "fl", "last": "l", "first": "f", "neither": "", "restart": "r"}
"""What is seen before a frame is finished: a whole step, and all that early breaks leave of one."""


class FakeALE:
    """An emulator that shows whatever the test wants, in a palette of its own."""

    def __init__(self, rng: np.random.Generator, rows: int = 210, columns: int = 160) -> None:
        self.grey_of = rng.integers(0, 256, 256).astype(np.uint8)
        self.grey_of[rng.integers(0, 256, 40)] = 255
        self.colour_of = rng.integers(0, 256, (256, 3)).astype(np.uint8)
        self.screen = np.zeros((rows, columns), np.uint8)

    def getScreenDims(self) -> tuple[int, int]:  # noqa: N802
        return self.screen.shape[0], self.screen.shape[1]

    def getScreen(self, out: Bytes) -> None:  # noqa: N802
        assert out.shape == self.screen.shape
        out[:] = self.screen

    def getScreenGrayscale(self, out: Bytes) -> None:  # noqa: N802
        assert out.shape == self.screen.shape
        out[:] = self.grey_of[self.screen]

    def getScreenRGB(self, out: Bytes | None = None) -> Bytes:  # noqa: N802
        out = np.empty((*self.screen.shape, 3), np.uint8) if out is None else out
        assert out.shape == (*self.screen.shape, 3)
        out[:] = self.colour_of[self.screen]
        return out


class Reference:
    """The rule in its own words."""

    def __init__(self, ale: Any, height: int = 84, width: int = 84, grayscale: bool = True, maxpool: bool = True) -> None:
        self.ale, self.height, self.width, self.grayscale, self.maxpool = ale, height, width, grayscale, maxpool
        self.f0 = self.f1 = np.zeros_like(self.screen())

    def screen(self) -> Bytes:
        rows, columns = self.ale.getScreenDims()
        found = np.empty((rows, columns) if self.grayscale else (rows, columns, 3), np.uint8)
        (self.ale.getScreenGrayscale if self.grayscale else self.ale.getScreenRGB)(found)
        return found

    def see(self, what: str) -> None:
        if what in "rl":
            self.f0 = self.screen()
        if what == "r":
            self.f1 = np.zeros_like(self.f0)
        if what == "f":
            self.f1 = self.screen()

    def finished(self) -> Bytes:
        if self.maxpool:
            self.f0 = np.maximum(self.f0, self.f1)
        if self.f0.shape[:2] == (self.height, self.width):
            return self.f0
        return np.asarray(cv2.resize(self.f0, (self.width, self.height), interpolation=cv2.INTER_AREA), np.uint8)


class Both:
    """An implementation and the reference, which see the same."""

    def __init__(self, ale: Any, ours: Frames, **arguments: Any) -> None:
        self.ours, self.reference = ours, Reference(ale, **arguments)
        shape = (self.reference.height, self.reference.width, *(() if self.reference.grayscale else (3,)))
        self.history = np.zeros((5, *shape), np.uint8)
        self.count = 0

    def see(self, what: str) -> None:
        {"r": self.ours.restart, "f": self.ours.see_first, "l": self.ours.see_last}[what]()
        self.reference.see(what)

    def check(self) -> None:
        """Finish into one row of a longer history, and leave the others alone."""
        row = self.count % len(self.history)
        before = self.history.copy()
        self.ours.finish(self.history[row])
        before[row] = self.reference.finished()
        np.testing.assert_array_equal(self.history, before)
        self.count += 1


def make(kind: str, ale: Any, maxpool: bool = True) -> Frames:
    return OpenCVFrames(ale, 84, 84, True, maxpool) if kind == "opencv" else CompiledFrames(ale, maxpool, avx2=kind == "avx2")


def draw(rng: np.random.Generator, ale: FakeALE, colours: npt.NDArray[np.int64]) -> None:
    """The next screen: as before, a bit different, or different everywhere."""
    rows, columns = ale.screen.shape
    how = rng.integers(0, 10)
    if how == 0:
        ale.screen = rng.choice(colours, ale.screen.shape).astype(np.uint8)
    elif how == 1:
        ale.screen = np.full_like(ale.screen, rng.choice(colours))
    elif how < 9:
        ale.screen = ale.screen.copy()
        for _ in range(rng.integers(0, 6)):
            top, left = rng.integers(0, rows), rng.integers(0, columns)
            ale.screen[top : top + rng.integers(1, 12), left : left + rng.integers(1, 12)] = rng.choice(colours)


@pytest.mark.slow
@pytest.mark.parametrize("maxpool", [True, False], ids=["maxpool", "last"])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", KINDS)
def test_random_screens_in_any_order(kind: str, seed: int, maxpool: bool) -> None:
    rng = np.random.default_rng(seed)
    ale = FakeALE(rng)
    both = Both(ale, make(kind, ale, maxpool), maxpool=maxpool)
    pieces = list(PIECES.values())
    for number in range(250):
        # More and more colours, even ones alone at first: what is known of the palette must grow while frames are made.
        colours = np.arange(256) if seed % 2 and number > 150 else np.arange(0, min(256, 8 + 2 * number), 2)
        for what in pieces[rng.choice(len(pieces), p=(0.6, 0.1, 0.1, 0.1, 0.1))]:
            draw(rng, ale, colours)
            both.see(what)
        both.check()


@pytest.mark.parametrize("second", PIECES.values(), ids=PIECES)
@pytest.mark.parametrize("first", PIECES.values(), ids=PIECES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_pair_of_pieces(kind: str, first: str, second: str) -> None:
    """With bright screens before dark ones, so that what should have been forgotten would show."""
    ale = FakeALE(np.random.default_rng(0))
    ale.grey_of = np.arange(256).astype(np.uint8)
    both = Both(ale, make(kind, ale))
    shade = 250
    for pieces in ("r", first, second, "fl", first, second):
        for what in pieces:
            ale.screen = np.full_like(ale.screen, shade)
            ale.screen[100:] = 250 - shade
            shade -= 10
            both.see(what)
        both.check()


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_seen_is_black(kind: str) -> None:
    ale = FakeALE(np.random.default_rng(0))
    Both(ale, make(kind, ale)).check()


@pytest.mark.parametrize("kind", KINDS)
def test_every_index_and_every_pair_of_neighbours(kind: str) -> None:
    rng = np.random.default_rng(1)
    ale = FakeALE(rng)
    both = Both(ale, make(kind, ale))
    for number in range(120):
        values = np.arange(256) if number % 2 else np.arange(0, 256, 2)
        ale.grey_of = ale.grey_of if number else rng.permutation(256).astype(np.uint8)
        ale.screen = rng.choice(values, ale.screen.shape).astype(np.uint8)
        both.see("l")
        both.check()


@pytest.mark.parametrize("kind", KINDS)
def test_a_colour_that_appears_in_the_last_band_alone(kind: str) -> None:
    rng = np.random.default_rng(2)
    for value in (2, 3, 254, 255):
        for grey in (0, 1, 254, 255):
            ale = FakeALE(rng)
            ale.grey_of[value] = grey
            both = Both(ale, make(kind, ale))
            both.see("r")
            both.check()
            ale.screen = ale.screen.copy()
            ale.screen[-1, -1] = value
            for what in "fl":
                both.see(what)
            both.check()


@pytest.mark.parametrize("maxpool", [True, False], ids=["maxpool", "last"])
@pytest.mark.parametrize("grayscale", [True, False], ids=["grey", "RGB"])
@pytest.mark.parametrize("size", [(84, 84), (64, 64), (210, 160), (42, 42), (105, 80), (84, 110), (250, 200), (1, 1)])
@pytest.mark.parametrize("rows", [210, 250])
def test_every_size(rows: int, size: tuple[int, int], grayscale: bool, maxpool: bool) -> None:
    rng = np.random.default_rng(3)
    ale = FakeALE(rng, rows)
    arguments: dict[str, Any] = {"height": size[0], "width": size[1], "grayscale": grayscale, "maxpool": maxpool}
    both = Both(ale, frames_of(ale, **arguments), **arguments)  # type: ignore[arg-type]
    for pieces in ("r", "fl", "f", "fl", "l", "", "fl"):
        for what in pieces:
            draw(rng, ale, np.arange(256))
            both.see(what)
        both.check()


@pytest.mark.slow
@pytest.mark.parametrize("game", ["pong", "breakout", "space_invaders"])
@pytest.mark.parametrize("kind", KINDS)
def test_real_games_as_in_ales_own_vector_environment(kind: str, game: str) -> None:
    ale_py = pytest.importorskip("ale_py", reason="ale-py is not installed")
    theirs = ale_py.AtariVectorEnv(
        game, num_envs=1, stack_num=1, noop_max=0, use_fire_reset=False, episodic_life=True, repeat_action_probability=0.0
    )
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.setInt("random_seed", 3)
    ale.loadROM(ale_py.roms.get_rom_path(game))
    ours = make(kind, ale)
    reference = Reference(ale)
    actions = ale.getMinimalActionSet()
    frame = np.empty((84, 84), np.uint8)
    rng = np.random.default_rng(0)
    early = over = 0
    try:
        observations, _ = theirs.reset(seed=3)
        for number in range(700):
            if number == 0 or over:
                ale.reset_game()
                ours.restart()
                reference.see("r")
                lives, over = ale.lives(), 0
                if number:
                    observations, *_ = theirs.step(np.zeros(1, np.int64))
            else:
                action = int(rng.integers(len(actions)))
                for left in (3, 2, 1, 0):
                    ale.act(actions[action])
                    if ale.game_over() or 0 < ale.lives() < lives:
                        over = 1
                        break
                    if left == 1:
                        ours.see_first()
                        reference.see("f")
                    elif left == 0:
                        ours.see_last()
                        reference.see("l")
                early += over
                observations, *_ = theirs.step(np.array([action]))
            ours.finish(frame)
            np.testing.assert_array_equal(frame, reference.finished())
            np.testing.assert_array_equal(frame, observations[0, 0])
    finally:
        theirs.close()
    assert early or game == "pong"  # else early breaks have not been tried


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_array_is_refused(kind: str) -> None:
    frames = make(kind, FakeALE(np.random.default_rng(0)))
    read_only = np.zeros((84, 84), np.uint8)
    read_only.flags.writeable = False
    wrong: list[npt.NDArray[Any]] = [
        np.zeros((83, 84), np.uint8),
        np.zeros((84, 85), np.uint8),
        np.zeros(84 * 84, np.uint8),
        np.zeros((84, 84, 1), np.uint8),
        np.zeros((84, 84), np.int8),
        np.zeros((84, 84), np.bool_),
        np.zeros((84, 84), np.float32),
        np.zeros((84, 168), np.uint8)[:, ::2],
        np.asfortranarray(np.zeros((84, 84), np.uint8)),
        read_only,
    ]
    for out in wrong:
        with pytest.raises(ValueError, match=r"C-contiguous|read-only"):
            frames.finish(out)
        assert not out.any()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS[1:])
def test_the_grey_of_the_larger_of_two_colours(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ale = FakeALE(rng)
    frames = ColourFrames(ale, avx2=kind == "avx2")
    pictures, shown = np.zeros((2, 2, 210, 160, 3), np.uint8)
    frame = np.zeros((84, 84), np.uint8)
    for number in range(80):
        colours = np.arange(256) if seed and number > 50 else np.arange(0, min(256, 8 + 4 * number), 2)
        for half in (0, 1) if number == 0 else [(0, 1), (0,), (1,), ()][rng.choice(4, p=(0.7, 0.1, 0.1, 0.1))]:
            draw(rng, ale, colours)
            (frames.see_last if half else frames.see_first)()
            pictures[half] = ale.getScreenRGB()
        frames.finish(frame)
        larger = cv2.cvtColor(pictures.max(axis=0), cv2.COLOR_RGB2GRAY)
        np.testing.assert_array_equal(frame, cv2.resize(larger, (84, 84), interpolation=cv2.INTER_AREA))
        frames.show(shown, [True, True])
        np.testing.assert_array_equal(shown, pictures)
    shown[...] = 7
    frames.show(shown, [False, True])
    assert (shown[0] == 7).all() and (shown[1] == pictures[1]).all()


@pytest.mark.parametrize("kind", KINDS[1:])
def test_another_maker_of_frames_goes_on(kind: str) -> None:
    rng = np.random.default_rng(4)
    ale = FakeALE(rng)
    one = CompiledFrames(ale, avx2=kind == "avx2")  # type: ignore[arg-type]
    frame, other_frame = np.zeros((2, 84, 84), np.uint8)
    for pieces in ("r", "fl", "f", "l", "", "fl"):
        other = CompiledFrames(ale, avx2=kind == "avx2")  # type: ignore[arg-type]
        other.recall(one.remembered())
        for what in pieces:
            draw(rng, ale, np.arange(256))
            for frames in (one, other):
                {"r": frames.restart, "f": frames.see_first, "l": frames.see_last}[what]()
        one.finish(frame)
        other.finish(other_frame)
        np.testing.assert_array_equal(frame, other_frame)
        np.testing.assert_array_equal(cv2.resize(one.remembered()[1], (84, 84), interpolation=cv2.INTER_AREA), frame)


@NO_KERNEL
def test_the_kernel_refuses_wrong_pictures() -> None:
    pairs, palette = np.zeros((256, 256), np.uint8), np.zeros((256, 3), np.uint8)
    screen = np.zeros((210, 160), np.uint8)
    with pytest.raises(ValueError, match=r"\(256, 256\)"):
        KERNEL.Kernel(screen, True, pairs[1:])
    kernel = KERNEL.Kernel(screen, pairs=pairs)
    with pytest.raises(ValueError, match=r"\(256, 3\)"):
        kernel.show(palette[1:], np.zeros((420, 480), np.uint8))
    with pytest.raises(ValueError, match=r"\(420, 480\)"):
        kernel.show(palette, np.zeros((420, 160), np.uint8))
    for method in (kernel.load, kernel.store):
        with pytest.raises(ValueError, match=r"\(420, 160\)"):
            method(screen)
    before = sys.getrefcount(pairs)
    del kernel, method
    assert sys.getrefcount(pairs) == before - 1


@NO_KERNEL
def test_the_kernel_refuses_wrong_arrays() -> None:
    for screen in (np.zeros((210, 159), np.uint8), np.zeros((210, 160), np.int16), np.zeros((210, 320), np.uint8)[:, ::2]):
        with pytest.raises(ValueError, match="C-contiguous"):
            KERNEL.Kernel(screen)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        KERNEL.Kernel(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"\(210, 160\)"):
        KERNEL.Kernel(np.zeros((210, 160), np.uint8)).learn(np.zeros((10, 10), np.uint8))


@NO_KERNEL
def test_a_screen_that_was_not_learnt_leaves_nothing_behind() -> None:
    """As if an exception had come between."""
    screen, frame = np.full((210, 160), 2, np.uint8), np.zeros((84, 84), np.uint8)
    kernel = KERNEL.Kernel(screen)
    assert not kernel.see_last()
    kernel.learn(np.full_like(screen, 100))
    assert kernel.see_last()
    screen[:] = 4
    assert not kernel.see_last()
    screen[:] = 2
    assert kernel.see_last()
    kernel.finish(frame)
    assert (frame == 100).all()


@NO_KERNEL
def test_the_kernel_lets_go_of_the_screen() -> None:
    screen = np.zeros((210, 160), np.uint8)
    before = sys.getrefcount(screen)
    kernel = KERNEL.Kernel(screen)
    assert sys.getrefcount(screen) > before
    del kernel
    assert sys.getrefcount(screen) == before


@NO_KERNEL
def test_the_kernel_is_chosen_where_it_fits() -> None:
    ale: Any = FakeALE(np.random.default_rng(0))
    assert isinstance(frames_of(ale), CompiledFrames)
    assert isinstance(frames_of(ale, maxpool=False), CompiledFrames)
    assert isinstance(frames_of(ale, 84, 85), OpenCVFrames)
    assert isinstance(frames_of(ale, grayscale=False), OpenCVFrames)
    assert isinstance(frames_of(FakeALE(np.random.default_rng(0), rows=250)), OpenCVFrames)  # type: ignore[arg-type]


def test_without_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_frames", None)
    ale: Any = FakeALE(np.random.default_rng(0))
    assert isinstance(frames_of(ale), OpenCVFrames)


def test_without_opencv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    module._opencv.cache_clear()
    ale: Any = FakeALE(np.random.default_rng(0))
    frames_of(ale, 210, 160)  # nothing to scale
    with pytest.raises(ImportError, match=r"pip install '\.\[atari\]'"):
        frames_of(ale, 42, 42)


@pytest.mark.parametrize("size", [(0, 84), (84, 0), (-1, 84)])
def test_no_size(size: tuple[int, int]) -> None:
    ale: Any = FakeALE(np.random.default_rng(0))
    with pytest.raises(ValueError, match="rows and columns"):
        frames_of(ale, *size)
