"""Does anything hang, leak or get lost where cores, descriptors, processes or disks run out, and in places that others own?

The cases are those of ``tests/soak/``. Each runs so many times (``--times``) in a process of its own, which takes it twice; random
spaces and infos are ``--examples`` against Gymnasium's ``SyncVectorEnv``. A hang is a run that has not ended in time, a leak what
is there afterwards and was not before, a loss another result than there should be, or another error. Exits 1 if there was one.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from common import arguments, wanted
from recording import print_machine, write_json
from showing import print_table

sys.path.append(str(Path(__file__).parents[1] / "tests" / "soak"))


def several(name: str, options: Any) -> dict[str, Any]:
    """A case, so many times."""
    from alone import SPACES, alone

    begin, found = time.monotonic(), Counter[str]()
    what: list[str] = []
    counts: Counter[str] = Counter()
    skipped = ""
    parts = -(-options.examples // PART) if name == SPACES else options.times
    for number in range(parts):
        of_part = min(PART, options.examples - number * PART) if name == SPACES else 1
        one = alone(name, options.patience * (5 if name == SPACES else 1), of_part, number)
        if skipped := one.get("skipped", ""):
            break
        found["runs"] += of_part if name == SPACES else 2
        counts.update(one.get("counts", {}))
        for kind, key in (("hangs", "hung"), ("leaks", "left"), ("losses", "lost")):
            if one.get(key):
                found[kind] += 1
                what.append(f"{key}: {one[key]}")
    seconds = time.monotonic() - begin
    print(f"{name}: {dict(found)} in {seconds:.0f} s", flush=True)
    kinds = {kind: found[kind] for kind in ("runs", "hangs", "leaks", "losses")}
    return {**kinds, "seconds": seconds, "what": what, "skipped": skipped, "counts": dict(counts)}


PART = 250
"""Random examples of one process."""


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--times", type=int, default=None, help="processes for each case (default 10, quick 1)")
    parser.add_argument("--examples", type=int, default=None, help="random spaces and infos (default 2000, quick 50)")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds after which a run counts as hung")
    parser.add_argument("--jobs", type=int, default=1, help="cases that run beside each other")
    options = parser.parse_args()
    options.times = options.times or (1 if options.quick else 10)
    options.examples = options.examples or (50 if options.quick else 2000)
    from alone import CASES, SPACES

    print_machine()
    names = [name for name in (SPACES, *CASES) if wanted(name, options.only)]
    with ThreadPoolExecutor(options.jobs) as pool:
        cases = dict(zip(names, pool.map(partial(several, options=options), names), strict=True))
    for name, found in cases.items():
        row = [f"{found[kind]}" for kind in ("runs", "hangs", "leaks", "losses")]
        print_table(name, ["runs", "hangs", "leaks", "losses", "seconds"], [[*row, f"{found['seconds']:.0f}"]])
        for line in (*found["what"], *([f"skipped: {found['skipped']}"] if found["skipped"] else [])):
            print(line)
    write_json(options, "faults", cases, times=options.times)
    return int(any(found[kind] for found in cases.values() for kind in ("hangs", "leaks", "losses")))


if __name__ == "__main__":
    sys.exit(main())
