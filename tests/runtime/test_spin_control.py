"""When a worker spins and when it parks at once, on a core that is made up: nothing here takes time."""

from __future__ import annotations

import math

import pytest

from reactor_rl.runtime import channel
from reactor_rl.runtime.channel import LATE, LONGEST, PARK_FACTOR, Channel, SpinControl

SPIN = 200e-6
TRY = 25e-9
OWN = 0.3e-6
"""Seconds that a yield takes on a core of one's own."""
SLICE = 4e-3
"""Seconds that it takes where somebody else always wants to run."""


class Core:
    """A core with a clock, and a channel whose worker runs on it.

    Attributes:
        now: The time.
        others: How long a yield takes.
        token_at: When the token arrives.
        yields: How often the core was yielded.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.others, self.token_at, self.yields = 0.0, OWN, math.inf, 0
        self.channel = Channel.__new__(Channel)
        self.channel.poll = self.poll
        monkeypatch.setattr(channel, "clock", lambda: self.now)
        monkeypatch.setattr(channel, "yield_processor", self.give_away)

    def poll(self, block: bool) -> bool:
        assert not block
        self.now += TRY
        return self.now >= self.token_at

    def give_away(self) -> None:
        self.yields += 1
        self.now += self.others

    def wait(self, spinning: SpinControl, token_in: float = math.inf) -> tuple[bool, int, float]:
        """Wait for a token that comes so many seconds from now. Whether there was one, how many yields, how many seconds."""
        begin, yields = self.now, self.yields
        self.token_at = begin + token_in
        found = self.channel.wait(spinning)
        return found, self.yields - yields, self.now - begin


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> Core:
    return Core(monkeypatch)


def until_spinning(core: Core, spinning: SpinControl) -> float:
    """Seconds of parking until the worker spins again."""
    begin = core.now
    assert core.wait(spinning)[1] == 0
    core.now = spinning.parks_until
    return core.now - begin


def test_on_its_own_core_a_worker_spins_for_its_time_and_yields(core: Core) -> None:
    spinning = SpinControl(SPIN)
    found, yields, seconds = core.wait(spinning)
    assert not found and yields > 50
    assert SPIN <= seconds < SPIN + channel.TRIES * TRY + 2 * OWN
    assert core.wait(spinning, token_in=20e-6)[:2] == (True, 13)
    assert core.wait(spinning, token_in=0.0)[:2] == (True, 0)


def test_no_time_to_spin_is_parking_at_once(core: Core) -> None:
    for _ in range(3):
        assert core.wait(SpinControl(0.0))[:2] == (False, 0)
    assert core.wait(SpinControl(0.0), token_in=0.0)[:2] == (True, 0)


def test_one_late_yield_and_it_parks_at_once(core: Core) -> None:
    spinning = SpinControl(SPIN)
    core.others = SLICE
    assert core.wait(spinning)[:2] == (False, 1)
    for _ in range(100):
        assert core.wait(spinning)[:2] == (False, 0)
    assert core.wait(spinning, token_in=0.0)[:2] == (True, 0)  # what is there is taken


def test_a_late_yield_counts_although_the_token_came_meanwhile(core: Core) -> None:
    spinning = SpinControl(SPIN)
    core.others = SLICE
    assert core.wait(spinning, token_in=SLICE / 2)[:2] == (True, 1)
    assert core.wait(spinning)[:2] == (False, 0)


def test_being_kept_from_running_between_two_yields_counts_too(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    spinning = SpinControl(SPIN)

    def preempted(block: bool) -> bool:
        core.now += LATE / 10
        return False

    core.channel.poll = preempted
    assert core.wait(spinning)[:2] == (False, 0)
    core.channel.poll = core.poll
    assert core.wait(spinning)[:2] == (False, 0)


def test_a_yield_that_is_not_late_changes_nothing(core: Core) -> None:
    spinning = SpinControl(SPIN)
    core.others = SPIN / 4
    for _ in range(10):
        assert core.wait(spinning)[1] == 4


def test_how_long_it_parks_doubles_while_it_goes_on(core: Core) -> None:
    spinning = SpinControl(SPIN)
    core.others = SLICE
    pauses = []
    for _ in range(8):
        assert core.wait(spinning)[1] == 1
        pauses.append(until_spinning(core, spinning))
    first = PARK_FACTOR * SLICE
    assert pauses == pytest.approx([min(first * 2**k, LONGEST) for k in range(8)], rel=1e-3)


@pytest.mark.parametrize("others", [LATE * 1.1, SLICE, 3 * SLICE])
def test_finding_out_costs_a_small_share_of_the_time(core: Core, others: float) -> None:
    spinning = SpinControl(SPIN)
    core.others = others
    lost = 0.0
    while core.now < 20.0:
        lost += core.wait(spinning)[2]
        core.now = max(core.now, spinning.parks_until)
    assert lost < 0.02 * core.now


def test_it_spins_again_within_a_second_of_quiet(core: Core) -> None:
    spinning = SpinControl(SPIN)
    core.others = SLICE
    while core.now < 10.0:
        core.wait(spinning)
        core.now = max(core.now, spinning.parks_until - 1e-6)
    core.others, quiet = OWN, core.now
    while core.wait(spinning, token_in=10e-6) == (False, 0, pytest.approx(TRY)):
        core.now += 50e-6  # it is woken
    assert core.now - quiet <= LONGEST
    for _ in range(1000):
        assert core.wait(spinning, token_in=10e-6)[0]


def test_after_quiet_the_first_late_yield_is_paid_for_anew(core: Core) -> None:
    spinning = SpinControl(SPIN)
    core.others = SLICE
    for _ in range(6):
        core.wait(spinning)
        core.now = spinning.parks_until
    core.others = OWN
    while core.now - spinning.parks_until < PARK_FACTOR * SLICE:
        assert core.wait(spinning, token_in=10e-6)[0]
    core.others = 2 * LATE
    core.wait(spinning)
    assert until_spinning(core, spinning) == pytest.approx(PARK_FACTOR * 2 * LATE, rel=0.01)


def test_with_a_neighbour_now_and_then_most_waits_still_spin(core: Core) -> None:
    spinning = SpinControl(SPIN)
    waits = spun = 0
    for _ in range(20_000):
        waits += 1
        core.others = 1.5 * LATE if waits % 5000 == 0 else OWN
        spun += core.wait(spinning, token_in=10e-6)[0]
        core.now += 20e-6
    assert spun > 0.9 * waits
