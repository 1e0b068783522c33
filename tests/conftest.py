"""Shared by all tests: golden files, updated with `pytest --bless`."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="write golden files instead of comparing")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with `tests/golden/<name>`; `--bless` writes it."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--bless"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"no {path}: run pytest --bless, then read what it wrote"
        assert text == path.read_text(encoding="utf-8")

    return compare


@pytest.fixture
def screen(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a verb; what is seen on standard output and standard error."""

    def run(*words: object) -> str:
        from rlprobe.cli import main

        capsys.readouterr()
        main([str(word) for word in words])
        streams = capsys.readouterr()
        return streams.out + streams.err

    return run


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test depends on the terminal, switches or directory of whoever ran before it."""
    monkeypatch.chdir(Path.cwd())  # which is gone back to
    monkeypatch.setenv("COLUMNS", "90")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("RLPROBE_DEBUG", raising=False)


def pytest_configure() -> None:
    """Undo what `nohup` and background shells leave to their children: ignored signals.

    The tests send these signals to processes of their own, which would inherit that.
    """
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, default)
