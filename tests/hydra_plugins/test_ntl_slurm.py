from typing import Any

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.types import RunMode
from omegaconf import OmegaConf

from ntl.config.composition import register
from ntl.config.folders import CONFIG_DIR
from ntl.launch import slurm

LAUNCHERS = sorted(path.stem for path in (CONFIG_DIR / "hydra" / "launcher").glob("*.yaml"))


def composed(name: str) -> Any:
    register()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None
        return hydra.compose_config("train", [f"hydra/launcher={name}"], RunMode.MULTIRUN)


@pytest.mark.parametrize("name", LAUNCHERS)
def test_every_launcher_composes_and_hydra_finds_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = composed(name)
    launcher: Any = Plugins.instance().instantiate_launcher(None, None, config)  # pyright: ignore[reportArgumentType]
    calls: list[Any] = []
    monkeypatch.setattr(slurm, "launch", lambda *given: calls.append(given) or ["result"])
    assert launcher.launch([["seed=1"]], 3) == ["result"]
    ((params, context, overrides, first),) = calls
    assert params["name"] == "ntl"
    assert context["config"] is config
    assert (overrides, first) == ([["seed=1"]], 3)


@pytest.mark.parametrize("name", LAUNCHERS)
def test_every_setting_is_one_of_hydra_submitit_launcher(name: str) -> None:
    module = pytest.importorskip("hydra_plugins.hydra_submitit_launcher.config")
    known = set(OmegaConf.structured(module.SlurmQueueConf()))
    assert set(composed(name).hydra.launcher) <= known
    assert set(OmegaConf.structured(module.BaseQueueConf())) - {"submitit_folder"} == slurm.SHARED


def test_the_example_explains_each_of_its_fields() -> None:
    lines = (CONFIG_DIR / "hydra" / "launcher" / "gpu_cluster.yaml").read_text().splitlines()
    fields = [line for line in lines if ":" in line and not line.startswith(("#", " ", "defaults"))]
    assert len(fields) > 10
    assert all("  # " in line for line in fields)
    assert {line.partition(":")[0] for line in fields} <= set(composed("slurm").hydra.launcher)
