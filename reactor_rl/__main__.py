"""``python -m reactor_rl COMMAND``: the engine's own commands, and those of plugins (entry points ``reactor_rl.commands``)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from inspect import getdoc

from reactor_rl import __version__
from reactor_rl.cli.commands import UsageError, draw_command, importable_here, trace_command, verify_command
from reactor_rl.cli.doctor import doctor_command
from reactor_rl.errors import ProgramError

__all__ = ["main"]

Function = Callable[[list[str]], int]

GROUP = "reactor_rl.commands"

# The engine's own commands do not need its metadata, so that they work in a checkout that was never installed.
OWN: dict[str, Function] = {
    "draw": draw_command,
    "trace": trace_command,
    "verify": verify_command,
    "doctor": doctor_command,
}


@dataclass(frozen=True)
class _Command:
    """A command, or the reason why it cannot run: its plugin's host library is missing, for example."""

    name: str
    function: Function | None
    reason: str = ""

    @property
    def description(self) -> str:
        if self.function is None:
            return f"(unavailable: {self.reason})"
        return ((getdoc(self.function) or "").strip().splitlines() or [""])[0]


def _commands(name: str | None = None) -> Iterator[_Command]:
    """List the commands, or the one of this name. A plugin that cannot be imported must not break the others."""
    for own, function in OWN.items():
        if name in (None, own):
            yield _Command(own, function)
    for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name):
        if entry.name in OWN or name not in (None, entry.name):
            continue
        try:
            yield _Command(entry.name, entry.load())
        except Exception as error:
            yield _Command(entry.name, None, f"{type(error).__name__}: {' '.join(str(error).split())}")


def _help() -> str:
    commands = list(_commands())
    width = max(len(command.name) for command in commands)
    lines = [f"  {command.name:{width}}  {command.description}" for command in commands]
    return "\n".join(
        [
            f"reactor_rl {__version__}",
            "",
            "usage: python -m reactor_rl COMMAND ... | --version | --help",
            "",
            *lines,
            "",
            "A target is MODULE:FACTORY [value | key=value ...], such as my_project.programs:search population=16.",
            "python -m reactor_rl COMMAND --help lists the options of a command.",
        ]
    )


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit status; 2 for an invalid command line."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] in (["-h"], ["--help"]):
        print(_help())
        return 0
    if arguments[:1] == ["--version"]:
        print(f"reactor_rl {__version__}")
        return 0
    if not arguments:
        print(_help(), file=sys.stderr)
        return 2
    name, *rest = arguments
    importable_here()
    try:
        command = next(_commands(name), None)
        if command is None:
            raise UsageError(f"unknown command {name!r}; python -m reactor_rl --help lists the commands")
        if command.function is None:
            raise UsageError(f"the command is unavailable: {command.reason}")
        return command.function(rest)
    except (UsageError, ProgramError) as error:
        print(f"reactor_rl {name}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
