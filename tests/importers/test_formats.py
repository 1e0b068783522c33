"""Formats are found where they lie: a new one is a file in a wing, and nothing else."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlprobe.errors import InputError
from rlprobe.importers import formats as registry
from rlprobe.importers import open_runs
from rlprobe.importers.formats import formats
from rlprobe.importers.importer import Importer, Reading
from rlprobe.importers.source import Source
from rlprobe.importers.tensorboard import event_files
from tests.importers.reading import log, points, read

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-framework.md"


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The file of docs/adding-a-framework.md in a wing of the importers."""
    wing = sys.modules[event_files.__name__.rpartition(".")[0]]
    folder = tmp_path / "wing"
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    log(folder, "acme.py", code)
    monkeypatch.setattr(wing, "__path__", [*wing.__path__, str(folder)])
    formats.cache_clear()
    yield
    monkeypatch.delattr(wing, "acme")
    monkeypatch.delitem(sys.modules, f"{wing.__name__}.acme")
    formats.cache_clear()


@pytest.mark.usefixtures("acme")
def test_a_new_file_is_a_new_format(tmp_path: Path) -> None:
    run = read(tmp_path, "run.log", "ACME step=1 loss=0.5\nACME step=2 loss=0.25\n")
    assert run.info.source == "acme"
    assert points(run, "loss") == [(1, 0.5), (2, 0.25)]
    registered = registry.named("acme")
    assert registered is not None
    assert registered.priority < formats()[-1].priority


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize("final", [True, False])
def test_an_error_of_a_final_format_is_the_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, final: bool
) -> None:
    def read(self: Importer, source: Source) -> list[Reading]:
        raise InputError("Couldn't read it as Acme's")

    registered = registry.named("acme")
    assert registered is not None
    monkeypatch.setattr(type(registered), "read", read)
    monkeypatch.setattr(type(registered), "final", final)
    path = log(tmp_path, "run.log", "ACME\nstep 1 | loss 0.5\n")
    if final:
        with pytest.raises(InputError, match="as Acme's"):
            open_runs(path)
    else:
        (run,) = open_runs(path)
        assert run.info.source == "console"


def test_formats_have_names_of_their_own_and_an_order() -> None:
    names = [importer.name for importer in formats()]
    assert len(set(names)) == len(names) >= 11
    assert all(importer.description and type(importer).__doc__ for importer in formats())
    priorities = [importer.priority for importer in formats()]
    assert priorities == sorted(set(priorities))
    assert [importer.name for importer in formats() if importer.fallback] == names[-1:]


def test_an_unknown_format_has_no_importer() -> None:
    assert registry.named("recording") is None
