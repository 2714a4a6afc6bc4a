"""Who may import what: read from the source, whether at the top, in a function or for types only."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
HOSTS = {"gymnasium", "stable_baselines3", "pettingzoo", "torch", "ale_py", "ray", "cv2", "supersuit"}
_BELOW_PETTINGZOO = {"reactor_gymnasium", "reactor_torch", "reactor_sb3"}
PLUGINS = {
    # What each may import, besides the engine's doors: hosts, and other plugins.
    "reactor_gymnasium": {"gymnasium", "ale_py", "cv2"},
    "reactor_torch": {"torch", "gymnasium"},
    "reactor_sb3": {"torch", "gymnasium", "stable_baselines3", "reactor_gymnasium", "reactor_torch"},
    "reactor_pettingzoo": {"torch", "gymnasium", "pettingzoo", "stable_baselines3", *_BELOW_PETTINGZOO},
    "reactor_ray": {"ray", "torch", "gymnasium", "pettingzoo", "reactor_gymnasium", "reactor_torch", "reactor_pettingzoo"},
}
DOORS = {name: (name, f"{name}.plugin") for name in ("reactor_rl", "reactor_gymnasium", "reactor_sb3")}
DOORS |= {plugin: (plugin,) for plugin in PLUGINS if plugin not in DOORS}


class Import(NamedTuple):
    """``name`` of ``module``; the module itself if that is empty."""

    module: str
    name: str
    line: int


class Module(NamedTuple):
    """A file as far as this test is concerned."""

    name: str
    tree: ast.Module
    imports: tuple[Import, ...]
    exported: frozenset[str]


def package_of(name: str) -> str:
    return name.partition(".")[0]


def read(name: str, source: str) -> Module:
    tree = ast.parse(source)
    imports: list[Import] = []
    exported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [Import(alias.name, "", node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: imports are absolute here"
            imports += [Import(str(node.module), alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.Assign) and any(isinstance(one, ast.Name) and one.id == "__all__" for one in node.targets):
            exported |= set(ast.literal_eval(node.value))
    return Module(name, tree, tuple(imports), frozenset(exported))


def files() -> Iterator[tuple[str, Path]]:
    for folder, base in [("reactor_rl", ROOT), *((plugin, ROOT / "plugins") for plugin in PLUGINS)]:
        for path in sorted([*(base / folder).rglob("*.py"), *(base / folder).rglob("*.pyi")]):
            name = ".".join(path.relative_to(base).with_suffix("").parts)
            yield name.removesuffix(".__init__"), path


@functools.cache
def all_modules() -> dict[str, Module]:
    return {name: read(name, path.read_text()) for name, path in files()}


def target(found: Import, modules: dict[str, Module]) -> str | None:
    """The file of ours that is imported: a submodule, or the module that has the name."""
    if f"{found.module}.{found.name}" in modules:
        return f"{found.module}.{found.name}"
    return found.module if found.module in modules else None


# ---------------------------------------------------------------------- the rules


def wrong_directions(modules: dict[str, Module]) -> list[str]:
    """The engine knows no host and no plugin, and each plugin only those that it is built on."""
    wrong = []
    for module in modules.values():
        package = package_of(module.name)
        allowed = PLUGINS.get(package, set()) | {package, "reactor_rl"}
        for found in module.imports:
            top = package_of(found.module)
            if top in HOSTS | set(PLUGINS) and top not in allowed:
                wrong.append(f"{module.name}:{found.line} imports {top}")
    return wrong


def past_doors(modules: dict[str, Module]) -> list[str]:
    """From another package of ours only what its doors offer."""
    wrong = []
    for module in modules.values():
        for found in module.imports:
            package = package_of(found.module)
            if package in DOORS and package != package_of(module.name):
                to = target(found, modules)
                if to not in DOORS[package]:
                    wrong.append(f"{module.name}:{found.line} imports {to}, which is no door of {package}")
    return wrong


def not_exported(modules: dict[str, Module]) -> list[str]:
    """What is imported from a module is in its ``__all__``."""
    wrong = []
    for module in modules.values():
        for found in module.imports:
            of_module = found.name and found.module in modules and target(found, modules) == found.module
            if of_module and found.name not in modules[found.module].exported:
                wrong.append(f"{module.name}:{found.line} imports {found.name}, which {found.module} does not list")
    return wrong


def circle(modules: dict[str, Module]) -> list[str]:
    """Files that import each other in a circle, empty if none do."""
    graph: dict[str, set[str]] = {}
    for module in modules.values():
        to = {target(found, modules) for found in module.imports} - {None, module.name}
        graph[module.name] = {str(one) for one in to}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def without_docstring(modules: dict[str, Module]) -> list[str]:
    """A file says in its first line what it is about."""
    return [module.name for module in modules.values() if not ast.get_docstring(module.tree)]


RULES = [wrong_directions, past_doors, not_exported, circle, without_docstring]


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_the_rules_hold(rule: object) -> None:
    modules = all_modules()
    assert len(modules) > 100
    assert rule(modules) == []  # type: ignore[operator]


BROKEN = {
    "wrong_directions": {"reactor_rl.graph": '"""."""\nimport torch'},
    "past_doors": {
        "reactor_sb3.a": '"""."""\nfrom reactor_rl.graph import build',
        "reactor_rl.graph": '"""."""\n__all__ = ["build"]',
    },
    "not_exported": {"reactor_rl.a": '"""."""\nfrom reactor_rl.b import x', "reactor_rl.b": '"""."""\nx = 1\n__all__ = []'},
    "circle": {
        "reactor_rl.a": '"""."""\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import reactor_rl.b',
        "reactor_rl.b": '"""."""\ndef f():\n    import reactor_rl.a',
    },
    "without_docstring": {"reactor_rl.a": "x = 1"},
}


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_broken_by_something(rule: object) -> None:
    name = rule.__name__  # type: ignore[attr-defined]
    modules = {module: read(module, source) for module, source in BROKEN[name].items()}
    assert [other.__name__ for other in RULES if other(modules)] == [name]
