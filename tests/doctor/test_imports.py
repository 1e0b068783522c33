"""What scripts and the modules beside them import and call, by their text."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlprobe.commands.starts import Target
from rlprobe.doctor import packages
from rlprobe.doctor.imports import Look, Sources
from rlprobe.taps import hooks


def look(folder: Path, files: dict[str, str], target: Target | None = None) -> Sources:
    for name, text in files.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Look(folder).at(target or Target("script", "train.py"))


def seen(sources: Sources) -> dict[str, tuple[str, ...]]:
    return {use.package.name: use.seen for use in packages.uses(sources)}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import wandb\nwandb.log({})", {"wandb": ("wandb.log (train.py, line 2)",)}),
        ("import wandb as w\nw.log({})", {"wandb": ("w.log (train.py, line 2)",)}),
        ("from wandb import log\nlog({})", {"wandb": ("log (train.py, line 2)",)}),
        (
            "import wandb\nrun = wandb.init()\nrun.log({})\nrun.log({})",
            {"wandb": ("run.log (train.py, line 3, and 1 more)",)},
        ),
        ("import wandb\nimport math\nmath.log(2)", {"wandb": ()}),
        (
            "from torch.utils.tensorboard import SummaryWriter as W\nW().add_scalar('a', 1, 1)",
            {"torch.utils.tensorboard": ("W().add_scalar (train.py, line 2)",)},
        ),
        ("from torch.utils import data\nlog(1)", {}),
        (
            "import mlflow\ndef f():\n    mlflow.log_metrics({})",
            {"mlflow": ("mlflow.log_metrics (train.py, line 3)",)},
        ),
        ("from transformers import AutoTokenizer", {"transformers": ()}),
        (
            "import transformers\ntransformers.Trainer().train()",
            {"transformers": ("Trainer (train.py, line 2)",)},
        ),
        ("from trl import GRPOTrainer", {"trl": ("GRPOTrainer (train.py, line 1)",)}),
        (
            "from stable_baselines3 import PPO\nPPO('x').learn(9)",
            {"stable_baselines3": ("PPO().learn (train.py, line 2)",)},
        ),
        (
            "import importlib\nt = importlib.import_module('trackio')\nt.log({})",
            {"trackio": ("t.log (train.py, line 3)",)},
        ),
        ("import os, json\nprint(1)", {}),
    ],
)
def test_what_of_a_script_is_recorded(
    tmp_path: Path, code: str, expected: dict[str, tuple[str, ...]]
) -> None:
    assert seen(look(tmp_path, {"train": code})) == expected


def test_modules_beside_a_script_are_followed_and_others_are_not(tmp_path: Path) -> None:
    files = {
        "train": "from lib.logs import report\nimport torch, tools\n",
        "lib/__init__": "",
        "lib/logs": "from . import deep\nfrom .deep.er import x\nimport wandb\nwandb.log({})\n",
        "lib/deep/__init__": "",
        "lib/deep/er": "from ..other import y\n",
        "lib/other": "import swanlab\ntry:\n    import aim\nexcept ImportError:\n    pass\n",
        "tools": "import train\ndef f():\n    import mlflow\n",
        "unrelated": "import comet_ml\n",
    }
    sources = look(tmp_path, files)
    assert set(sources.files) == {
        "train.py", "lib/__init__.py", "lib/logs.py", "tools.py", "lib/deep/__init__.py",
        "lib/deep/er.py", "lib/other.py",
    }  # fmt: skip
    optional = {use.package.name: use.optional for use in packages.uses(sources)}
    assert optional == {"wandb": False, "swanlab": False, "aim": True, "mlflow": True}


def test_a_module_is_looked_for_from_the_working_directory(tmp_path: Path) -> None:
    files = {"pkg/__init__": "", "pkg/train": "from . import logs", "pkg/logs": "import wandb"}
    sources = look(tmp_path, files, Target("module", "pkg.train"))
    assert set(sources.files) == {"pkg/train.py", "pkg/logs.py", "pkg/__init__.py"}
    sources = look(tmp_path, {"pkg/__main__": "import trackio"}, Target("module", "pkg"))
    assert "trackio" in seen(sources)
    assert look(tmp_path, {}, Target("module", "other")).missing


def test_what_cannot_be_parsed_is_said(tmp_path: Path) -> None:
    (tmp_path / "nul.py").write_bytes(b"\0\0")
    files = {"train": "import old, deep, nul\n", "old": "print 'x'", "deep": "(" * 900}
    sources = look(tmp_path, files)
    assert list(sources.files) == ["train.py"]
    assert [name for name, _ in sources.unread] == ["old.py", "deep.py", "nul.py"]
    assert sources.unread[0][1].startswith("line 1: ")


def test_more_modules_than_are_looked_at_are_counted(tmp_path: Path) -> None:
    files = {f"m{number}": "" for number in range(310)}
    sources = look(tmp_path, {**files, "train": "\n".join(f"import {name}" for name in files)})
    assert len(sources.files) == 300
    assert sources.more == 11


def test_trackers_that_are_off_are_noted(tmp_path: Path) -> None:
    code = "import wandb\nwandb.init(mode='disabled')\nwandb.init(mode='online')\nopen(mode='r')"
    assert look(tmp_path, {"train": code}).switched_off == ['wandb.init(mode="disabled")']


def test_every_package_that_is_tapped_is_known() -> None:
    for module in hooks.HOOKS:
        owners = [p.name for p in packages.PACKAGES if module.partition(".")[0] in p.roots]
        assert owners, f"{module} is tapped, and `rlprobe doctor` does not know it"


def test_a_stack_logs_by_itself(tmp_path: Path) -> None:
    (use,) = packages.uses(Sources(), "verl.trainer.main_ppo")
    assert use.seen == ("verl.trainer.main_ppo (python -m)",)


def test_links_that_go_round_in_a_circle_are_no_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").symlink_to("train.py")
    assert look(tmp_path, {}).missing == "no such file: 'train.py'"
