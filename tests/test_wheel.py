"""The package as others get it: built, installed into a clean environment, used there."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.integration


def run(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_every_source_file(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    tree = {
        str(path.relative_to(ROOT / folder).as_posix()): target
        for folder, target in (
            ("rlprobe", "rlprobe"),
            ("detectors", "rlprobe/detectors"),
            ("schemas", "rlprobe/schemas"),
        )
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".toml", ".json", ".typed"}
        and "__pycache__" not in path.parts
        and f"{target}/{path.relative_to(ROOT / folder).as_posix()}" not in names
    }
    assert tree == {}


@pytest.mark.parametrize("editable", [False, True])
def test_a_clean_environment_records_and_scans(
    wheel: Path, tmp_path: Path, *, editable: bool
) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    what = ["-e", ROOT] if editable else [wheel]
    run(python, "-m", "pip", "install", "--quiet", *what, cwd=tmp_path)
    command = tmp_path / "venv" / "bin" / "rlprobe"
    output = run(command, "demo", "run", cwd=tmp_path).stdout
    assert "ZERO_VARIANCE" in output
    listed = run(command, "explain", cwd=tmp_path).stdout
    assert "KL_BLOWUP" in listed
    run(python, "-m", "rlprobe", "query", "run", "select count(*) from steps", cwd=tmp_path)
