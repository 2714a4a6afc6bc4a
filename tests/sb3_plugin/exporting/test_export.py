"""``reactor_sb3.export`` and ``python -m reactor_rl export``: models of all libraries, and what is refused."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from exported import compile_file, compiled, dense_outputs, read, run, session_of
from gymnasium import spaces
from policy_cases import BOX, CASES, CHOICE, TOUCHED, VECTOR, Case, Gallery, disturb
from sb3_contrib import QRDQN, TQC, TRPO, CrossQ, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from stable_baselines3.dqn.policies import DQNPolicy
from torch import nn

from reactor_rl.plugin import UsageError
from reactor_sb3 import PQN, SyncPPO, export
from reactor_sb3.cli.export import main
from reactor_sb3.exporting.onnx_model import onnx_of

SMALL: dict[str, Any] = {"net_arch": [16, 16]}
DOUBLE = spaces.Box(-3, 3, (2, 2), np.float64)


def model_of(cls: Any, actions: Any, observed: Any = VECTOR, env: Any = None, **arguments: Any) -> Any:
    """A model of SB3's with weights that make it choose this and that."""
    network = SMALL | ({"lstm_hidden_size": 8} if cls is RecurrentPPO else {}) | arguments.pop("policy_kwargs", {})
    kind = "MlpLstmPolicy" if cls is RecurrentPPO else "MlpPolicy"
    made = cls(kind, env or Gallery(observed, actions), policy_kwargs=network, device="cpu", seed=0, **arguments)
    torch.manual_seed(3)
    disturb(made.policy)
    return made


def seen_of(space: Any, rows: int = 500) -> Any:
    random = np.random.default_rng(1)
    if isinstance(space, spaces.Discrete):
        return random.integers(space.n, size=rows)
    return random.uniform(-3, 3, (rows, *space.shape)).astype(space.dtype)


def predicted(model: Any, seen: Any) -> Any:
    """The best actions; of a policy that remembers, those of an episode."""
    if not hasattr(model.policy, "lstm_actor"):
        return model.predict(seen, deterministic=True)[0]
    state, actions = None, []
    for number, row in enumerate(seen):
        action, state = model.predict(row, state, np.array([number == 0]), deterministic=True)
        actions.append(action)
    return np.array(actions)


# ---------------------------------------------------------------------- models


@pytest.mark.parametrize("cls", [A2C, PPO, DQN, DDPG, TD3, SAC, TRPO, MaskablePPO, QRDQN, TQC, CrossQ, RecurrentPPO])
def test_a_file_of_sb3s_is_exported_on_the_command_line(cls: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = model_of(cls, BOX if cls in (DDPG, TD3, SAC, TQC, CrossQ) else CHOICE)
    model.save(tmp_path / "model.zip")
    assert main([str(tmp_path / "model.zip"), str(tmp_path / "policy.h")]) == 0
    assert re.fullmatch(r".*policy\.h: [\d,]+ bytes\n", capsys.readouterr().out)
    greedy, seen = read(model), seen_of(VECTOR)
    outputs, actions = run(compile_file(tmp_path, {"policy": greedy}), "policy", greedy, seen, np.ones((len(seen), 3), np.bool_))
    assert outputs.tobytes() == dense_outputs(greedy, seen).tobytes()
    np.testing.assert_allclose(actions, predicted(model, seen), atol=2e-6)


def test_layer_norm_has_the_actors_bits(tmp_path: Path) -> None:
    with Case(PQN, CHOICE).made() as model:
        greedy, seen = read(model), seen_of(VECTOR)
        wanted = predicted(model, seen)
    assert "normalised" in {layer.kind for layer in greedy.layers}
    outputs, actions = run(compiled(tmp_path, {"policy": greedy}), "policy", greedy, seen, None)
    assert outputs.tobytes() == dense_outputs(greedy, seen).tobytes()
    np.testing.assert_array_equal(actions, wanted)
    found = session_of(onnx_of(greedy)).run(["action", "outputs"], {"observation": seen})
    np.testing.assert_array_equal(found[0], wanted)
    np.testing.assert_allclose(found[1], outputs, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("observed", [VECTOR, spaces.Discrete(4), DOUBLE], ids=str)
def test_a_network_of_one_layer(observed: Any, tmp_path: Path) -> None:
    model = model_of(DQN, CHOICE, observed, policy_kwargs={"net_arch": []})
    greedy, seen = read(model), seen_of(observed)
    outputs, actions = run(compiled(tmp_path, {"policy": greedy}), "policy", greedy, seen, None)
    assert outputs.tobytes() == dense_outputs(greedy, seen).tobytes()
    np.testing.assert_array_equal(actions, predicted(model, seen))


@pytest.mark.parametrize("cells", [1, 5])
def test_an_lstm_of_any_number_of_cells(cells: int, tmp_path: Path) -> None:
    model = model_of(RecurrentPPO, CHOICE, policy_kwargs={"lstm_hidden_size": cells})
    greedy, seen = read(model), seen_of(VECTOR)
    outputs, actions = run(compiled(tmp_path, {"policy": greedy}), "policy", greedy, seen, None)
    assert outputs.tobytes() == dense_outputs(greedy, seen).tobytes()
    np.testing.assert_array_equal(actions, predicted(model, seen))


@pytest.mark.parametrize("cls", [PPO, SAC])
@pytest.mark.parametrize("squash", [False, True])
def test_gsde_without_its_noise(cls: Any, squash: bool, tmp_path: Path) -> None:
    network = {"squash_output": squash} if cls is PPO else {"clip_mean": 2.0 if squash else 0.0}
    model = model_of(cls, BOX, use_sde=True, policy_kwargs=network)
    greedy, seen = read(model), seen_of(VECTOR)
    _, actions = run(compiled(tmp_path, {"policy": greedy}), "policy", greedy, seen, None)
    np.testing.assert_allclose(actions, predicted(model, seen), atol=2e-6)
    found = session_of(onnx_of(greedy)).run(["action"], {"observation": seen})[0]
    np.testing.assert_allclose(found, actions, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "actions",
    [spaces.Discrete(3, start=2), spaces.Discrete(3, start=-1), spaces.MultiDiscrete([2, 3], start=[5, -4]), DOUBLE],
    ids=str,
)  # fmt: skip
def test_actions_are_those_of_the_space(actions: Any, tmp_path: Path) -> None:
    model = model_of(PPO, actions, DOUBLE)
    greedy, seen = read(model), seen_of(DOUBLE)
    _, found = run(compiled(tmp_path, {"policy": greedy}), "policy", greedy, seen, None)
    wanted = predicted(model, seen) + getattr(actions, "start", 0)  # which SB3 leaves out
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert all(actions.contains(one) for one in found)
    by_onnx = session_of(onnx_of(greedy)).run(["action"], {"observation": seen})[0]
    np.testing.assert_allclose(by_onnx, found, atol=1e-6)
    assert by_onnx.dtype == actions.dtype


# ---------------------------------------------------------------------- normalisation


def normalizing(space: Any, actions: Any = CHOICE, **arguments: Any) -> VecNormalize:
    """Statistics that differ from number to number, and a limit that is reached."""
    normalize = VecNormalize(DummyVecEnv([partial(Gallery, space, actions)]), clip_obs=1.25, **arguments)
    normalize.obs_rms.update(seen_of(space) * np.arange(1, 5).reshape(space.shape) / 4 - 0.5)
    return normalize


def test_observations_are_normalised_inside(tmp_path: Path) -> None:
    normalize = normalizing(DOUBLE)
    model = model_of(PPO, CHOICE, env=normalize)
    greedy, seen = read(model), seen_of(DOUBLE)
    shown = normalize.normalize_obs(seen)
    assert all((shown == limit).any() for limit in (-1.25, 1.25)) and (np.abs(shown) < 1.25).any()
    outputs, actions = run(compiled(tmp_path, {"policy": greedy}), "policy", greedy, seen, None)
    assert outputs.tobytes() == dense_outputs(greedy, shown).tobytes()
    np.testing.assert_array_equal(actions, predicted(model, shown))
    by_onnx = session_of(onnx_of(greedy)).run(["outputs"], {"observation": seen})[0]
    np.testing.assert_allclose(by_onnx, outputs, atol=1e-6, rtol=1e-6)


def test_statistics_come_from_where_they_are(tmp_path: Path) -> None:
    normalize = normalizing(DOUBLE)
    model = model_of(PPO, CHOICE, env=normalize)
    model.save(tmp_path / "model.zip")
    normalize.save(str(tmp_path / "statistics.pkl"))
    export(model, tmp_path / "policy.h")
    wanted = (tmp_path / "policy.h").read_text()
    assert "VecNormalize" in wanted
    main([str(tmp_path / "model.zip"), str(tmp_path / "policy.h"), "--normalize", str(tmp_path / "statistics.pkl")])
    assert (tmp_path / "policy.h").read_text() == wanted
    export(model.policy, tmp_path / "policy.h", normalize=normalize)
    assert (tmp_path / "policy.h").read_text() == wanted
    main([str(tmp_path / "model.zip"), str(tmp_path / "policy.h")])
    assert "VecNormalize" not in (tmp_path / "policy.h").read_text()
    normalize.norm_obs = False
    for given in (None, normalize):
        export(model, tmp_path / "policy.h", normalize=given)
        assert "VecNormalize" not in (tmp_path / "policy.h").read_text()


def test_a_trainers_statistics_are_inside(tmp_path: Path) -> None:
    with SyncPPO("MlpPolicy", normalizing(DOUBLE), n_actors=1, seed=0, policy_kwargs=SMALL, executor="inline") as model:
        greedy = read(model)
    assert len(greedy.normalized) == 1 and greedy.normalized[0].limit == 1.25


# ---------------------------------------------------------------------- files


def test_names_are_those_of_the_file(tmp_path: Path) -> None:
    model = model_of(DQN, CHOICE)
    for file, name in (("my-policy.h", "my_policy"), ("2.h", "policy_2"), ("new/dir/it.h", "it")):
        export(model, tmp_path / file)
        text = (tmp_path / file).read_text()
        assert f"\n{name}_act(const float *observation)\n" in text and f'#include "{Path(file).name}"' in text


def test_a_header_writes_nothing_but_what_is_passed(tmp_path: Path) -> None:
    export(model_of(PPO, BOX), tmp_path / "policy.h")
    text = re.sub(r"/\*.*?\*/", "", (tmp_path / "policy.h").read_text(), flags=re.DOTALL)
    outside = re.findall(r"^(?![ }{#]|policy_)\S.*$", text, re.MULTILINE)
    assert outside and all(line.startswith(("static const ", "static inline ", "typedef union")) for line in outside), outside
    assert text.count("static ") == sum(line.startswith("static ") for line in outside)
    numbers = re.findall(r"-?0x[01][^,\s]*", text)
    assert numbers and max(map(len, numbers)) <= len("-0x1.abcdefp-10f")


@pytest.mark.slow
def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"path must end in \.h or \.onnx, got 'policy\.pt'"):
        export(model_of(PPO, CHOICE), "policy.pt")


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="must be a model or a policy of Stable-Baselines3, got Linear"):
        export(nn.Linear(2, 2), tmp_path / "policy.h")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="normalize must be a VecNormalize, got str"):
        export(model_of(PPO, CHOICE), tmp_path / "policy.h", normalize="statistics.pkl")  # type: ignore[arg-type]


# ---------------------------------------------------------------------- what cannot be exported


class OwnFeatures(BaseFeaturesExtractor):
    def __init__(self, space: Any) -> None:
        super().__init__(space, 3)
        self.layer = nn.Linear(3, 3)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.layer(observations)  # type: ignore[no-any-return]


REFUSED = {
    "ppo box, dict": "its observations are Dict.*put FlattenObservation around the environment",
    "ppo box, elu": r"its mlp_extractor.policy_net.1 is a ELU\(alpha=1\.0\).*Export knows",
    "ppo box, apart": "its actor and its critic do not share their features_extractor",
}


@pytest.mark.parametrize("name", REFUSED)
def test_layers_that_are_not_known_are_named(name: str, tmp_path: Path) -> None:
    with CASES[name].made() as model:
        for file in ("policy.h", "policy.onnx"):
            with pytest.raises(ValueError, match=f"SyncPPO cannot be exported: {REFUSED[name]}"):
                export(model, tmp_path / file)
    assert not list(tmp_path.iterdir())


def test_a_features_extractor_of_ones_own_is_named(tmp_path: Path) -> None:
    model = model_of(PPO, CHOICE, policy_kwargs={"features_extractor_class": OwnFeatures})
    with pytest.raises(ValueError, match="its pi_features_extractor is a OwnFeatures, not a FlattenExtractor"):
        export(model, tmp_path / "policy.h")


@pytest.mark.parametrize(
    "name", [f"{case}: {what}" for case, touches in TOUCHED.items() if CASES[case].exported for what in touches]
)
def test_what_somebody_has_changed_is_refused(name: str, tmp_path: Path) -> None:
    with CASES[name].made() as model:
        with pytest.raises(ValueError, match=r"cannot be exported: .*(has a forward hook|of its own|OwnPrediction|OwnFeatures)"):
            export(model, tmp_path / "policy.h")


class OwnPrediction(DQNPolicy):
    def _predict(self, observation: Any, deterministic: bool = True) -> torch.Tensor:
        return 2 - super()._predict(observation, deterministic)


def test_a_prediction_of_ones_own_is_named(tmp_path: Path) -> None:
    model = DQN(OwnPrediction, Gallery(VECTOR, CHOICE), device="cpu")
    with pytest.raises(ValueError, match=r"DQN cannot be exported: .*OwnPrediction has a _predict"):
        export(model, tmp_path / "policy.h")


def test_images_are_for_onnx(tmp_path: Path) -> None:
    with CASES["dqn, image"].made() as model:
        with pytest.raises(ValueError, match=r"a C header cannot see images: export to a file that ends in \.onnx"):
            export(model, tmp_path / "policy.h")


def test_weights_that_are_spoilt_are_refused(tmp_path: Path) -> None:
    model = model_of(PPO, CHOICE)
    with torch.no_grad():
        model.policy.action_net.bias[0] = np.nan
    with pytest.raises(ValueError, match=r"action_net\.bias"):
        export(model, tmp_path / "policy.h")


def test_statistics_of_another_shape_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"normalize has statistics of the shapes \(2, 2\), and the policy observes Box"):
        export(model_of(PPO, CHOICE), tmp_path / "policy.h", normalize=normalizing(DOUBLE))


def test_files_that_are_something_else_are_refused(tmp_path: Path) -> None:
    path, file = str(tmp_path / "model.zip"), str(tmp_path / "policy.h")
    with pytest.raises(UsageError, match="No such file"):
        main([path, file])
    (tmp_path / "model.zip").write_bytes(b"no zip")
    with pytest.raises(UsageError, match="no file that save"):
        main([path, file])
    with CASES["dqn"].made() as model:
        model.save_checkpoint(path)
        with pytest.raises(UsageError, match="is a checkpoint: resume it"):
            main([path, file])
        model.save(path)
    with pytest.raises(UsageError, match=r"no file that VecNormalize\.save\(\) has written"):
        main([path, file, "--normalize", path])
    with pytest.raises(UsageError, match="must end in"):
        main([path, path])


def test_help_says_that_files_are_unpickled(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "unpickled" in capsys.readouterr().out
