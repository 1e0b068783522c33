"""Plain options are taken as they are given, without the parser's validator."""

from __future__ import annotations

import subprocess
import sys

import typer
from typer.testing import CliRunner

from rlprobe.cli import HELP, application
from rlprobe.cli.plain_values import without_validators


def test_a_scan_imports_no_validator() -> None:
    code = (
        "import sys\nfrom rlprobe.cli import main\nmain(['scan', 'no-such-file'])\n"
        "print('pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_values_are_those_that_the_parser_gives() -> None:
    given: list[object] = []
    app = application()

    @app.command("probe")
    def probe(
        paths: list[str], name: str = "x", several: list[str] | None = None, *, flag: bool = False
    ) -> None:
        given.append((paths, name, several, flag))

    words = ["probe", "a", "b", "--several", "1", "--several", "2", "--flag"]
    for words_ in (words, ["probe", "a", "--name", "y"]):
        CliRunner().invoke(app, words_, catch_exceptions=False)
        command = without_validators(typer.main.get_command(app), HELP)
        command(words_, standalone_mode=False)
    assert given[0] == given[1] == (["a", "b"], "x", ["1", "2"], True)
    assert given[2] == given[3]
