"""The command line: one verb per file. Only `main` turns exceptions into exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from rlprobe import __version__, environment
from rlprobe.cli.output import complain, silence
from rlprobe.cli.plain_values import without_validators
from rlprobe.errors import RlprobeError
from rlprobe.exit_codes import COULD_NOT_JUDGE, INTERRUPTED, PASSED, UNREADABLE
from rlprobe.store import limits

PURPOSE = "flight recorder and doctor for RL fine-tuning runs"
HELP = ("-h", "--help")
# Verb -> module of this package, in the order of the help. The function has the module's name.
VERBS = {
    "record": "record",
    "doctor": "doctor",
    "scan": "scan",
    "show": "show",
    "gate": "gate",
    "explain": "explain",
    "import": "import_log",
    "query": "query",
    "ls": "ls",
    "compact": "compact",
    "calibrate": "calibrate",
    "demo": "demo",
}
# Verbs of somebody's command: from its first word on, nothing is an option of ours.
_RUN_COMMANDS = ("record", "doctor")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        _tolerate(stream)
    try:
        command = without_validators(typer.main.get_command(application()), HELP)
        with limits.scope():
            code = command(words or ["--help"], prog_name="rlprobe", standalone_mode=False)
    except RlprobeError as error:
        complain(error)
        return UNREADABLE
    except BrokenPipeError:
        silence()
        return PASSED
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:  # the outermost wall: a traceback would exit with 1, "findings"
        return _fault(error)
    return UNREADABLE if not words else int(code or PASSED)


def application() -> typer.Typer:
    """The command line with every verb."""
    app = typer.Typer(
        help=f"{PURPOSE[0].upper()}{PURPOSE[1:]}.",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": list(HELP)},
    )
    app.callback()(_options)
    for verb, module in VERBS.items():
        settings = {"allow_interspersed_args": verb not in _RUN_COMMANDS}
        function = getattr(import_module(f"rlprobe.cli.{module}"), module)
        app.command(verb, context_settings=settings)(function)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        here = Path(__file__).parents[1]
        print(f"rlprobe {__version__} ({PURPOSE}) from {here}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show which rlprobe this is."
        ),
    ] = False,
) -> None:
    """Options before the verb."""


def _tolerate(stream: object) -> None:
    """Let a terminal that cannot show a character show `?` in its place."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")


def _fault(error: Exception) -> int:
    """A usage error of the option parser, which knows its own message; else a fault of ours."""
    message = getattr(error, "format_message", None)
    if message is not None and hasattr(error, "exit_code"):
        command = getattr(getattr(error, "ctx", None), "command_path", "rlprobe")
        complain(RlprobeError(message(), hint=f"{command} --help"))
        return UNREADABLE
    fault = RlprobeError(
        f"internal error: {type(error).__name__}: {error}",
        hint=f"{environment.DEBUG}=1 shows the traceback; please report it.",
    )
    fault.__cause__ = error
    complain(fault)
    return COULD_NOT_JUDGE
