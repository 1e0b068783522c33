"""Environments that are prepared for a question: real ones of `venv`, with packages of one file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TRAIN = """
import wandb

wandb.init(mode="offline")
for step in range(3):
    wandb.log({"loss": 1.0 / (step + 1)})
"""


def environment(folder: Path, *packages: str, ours: bool = True) -> Path:
    """The Python of a new environment.

    Args:
        folder: where it is made.
        packages: `name version` of packages that are there by name alone.
        ours: whether this rlprobe is there.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    (site,) = folder.glob("lib/python*/site-packages")
    for package in packages:
        install(site, *package.split())
    if ours:
        (site / "rlprobe.pth").write_text(f"{ROOT}\n")
        _describe(site, "rlprobe", "0.2.0")
    return folder / "bin" / "python"


def install(site: Path, name: str, version: str) -> None:
    """A package of one file that ends whoever imports it."""
    (site / name).mkdir()
    (site / name / "__init__.py").write_text("raise SystemExit('imported')\n")
    _describe(site, name, version)


def _describe(site: Path, name: str, version: str) -> None:
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def executable(path: Path, text: str) -> Path:
    """A file that can be started."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def unwrapped(screen: str, folder: Path) -> str:
    """A screen without the line breaks of its width, and with `~` for a folder."""
    joined = screen.replace("\n    ", " ").replace(str(folder), "~")
    lines = [line for line in joined.splitlines() if "can be written" not in line]
    return "\n".join(lines).replace(os.sep * 2, os.sep) + "\n"
