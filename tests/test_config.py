"""Configuration: every key is checked, and a wrong one is told with the right one."""

from __future__ import annotations

import datetime
import inspect
from pathlib import Path

import pytest

from rlprobe import config as configuration
from rlprobe.config import Config
from rlprobe.errors import ConfigError
from rlprobe.findings import Severity

WAIVER = "[[waivers]]\ndetector = 'KL_BLOWUP'\nreason = 'x'\n"


def load(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "rlprobe.toml"
    path.write_text(text)
    return Config.load(path)


def test_the_documented_sample_is_valid(tmp_path: Path) -> None:
    doc = inspect.cleandoc(configuration.__doc__ or "")
    sample = doc.partition("\n\n")[2].rpartition("\n\n")[0].replace("./my_detectors", ".")
    config = load(tmp_path, inspect.cleandoc(sample))
    assert config.knobs == {"GRAD_PATHOLOGY": {"spike_ratio": 20.0}}
    assert config.gate.fail_on is Severity.CRITICAL
    assert config.waivers[0].until == datetime.date(2027, 1, 31)
    assert config.waivers[0].what == "TRUNCATION:start in steps 1 to 500"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("selct = []", "unknown key 'selct'", "Did you mean 'select'?"),
        ("select = 'A'", "must be a list of strings", ""),
        ("select = ['KL_BLOWUPS']", "no detector 'KL_BLOWUPS'", "Did you mean 'KL_BLOWUP'?"),
        ("[knobs.KL_BLOWUPP]\nx = 1", "no detector 'KL_BLOWUPP'", "KL_BLOWUP"),
        ("[knobs.GRAD_PATHOLOGY]\nspike_ration = 1", "unknown key 'spike_ration'", "spike_ratio"),
        ("[knobs.DIVERGENCE]\nrows = 7.2", "rows must be a whole number, not 7.2", ""),
        ("[knobs.GRAD_PATHOLOGY]\nspike_ratio = 'x'", "must be a number, not 'x'", ""),
        ("[knobs.GRAD_PATHOLOGY]\nspike_ratio = -1", "outside", ""),
        ("[gate]\nfail_on = 'bad'", "'bad'", ""),
        ("[[waivers]]\ndetector = 'KL_BLOWUP'", "needs a reason", ""),
        ("[[waivers]]\ndetector = 'KL_BLOWUP'\nreason = 'x'\nuntil = 'y'", "must be a date", ""),
        (WAIVER + "variant = 'jumping'", "KL_BLOWUP has no variant 'jumping'", "It has "),
        (WAIVER + "steps = [9, 1]", "'steps' must be the first and the last step", ""),
        (WAIVER + "steps = [1.5, 9]", "'steps' must be the first and the last step", ""),
        ("[gate]\nfail_on_resolved = 1", "must be true or false, not 1", ""),
        ("x = [", "Couldn't read configuration", ""),
    ],
)
def test_mistakes_are_told(tmp_path: Path, text: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert message in str(caught.value)
    assert hint in caught.value.hint


def test_the_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Config.load() == Config()
    (tmp_path / "pyproject.toml").write_text("[tool.rlprobe]\nignore = ['TRUNCATION']")
    assert Config.load().ignore == ("TRUNCATION",)
    (tmp_path / "rlprobe.toml").write_text("ignore = ['KL_BLOWUP']")
    assert Config.load().ignore == ("KL_BLOWUP",)
    with pytest.raises(ConfigError, match="nothing"):
        Config.load(tmp_path / "nothing.toml")


def test_a_waiver_may_end_at_a_time_of_day(tmp_path: Path) -> None:
    config = load(tmp_path, WAIVER + "until = 2027-01-31T12:00:00")
    assert config.waivers[0].until == datetime.date(2027, 1, 31)
