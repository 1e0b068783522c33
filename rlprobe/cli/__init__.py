"""The command line: one verb per file. Only `main` turns exceptions into exit codes.

0 judged, nothing at or above the bar; 1 findings at or above it; 2 a usage error or unreadable
input; 3 could not judge, or a fault of rlprobe itself.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated

import typer

from rlprobe import __version__
from rlprobe.cli.output import complain, silence
from rlprobe.errors import RlprobeError

UNREADABLE, COULD_NOT_JUDGE, INTERRUPTED = 2, 3, 130

# Verb -> module of this package, in the order of the help. The function has the module's name;
# a constant CONTEXT, if there is one, holds settings of the option parser.
VERBS = {
    "record": "record",
    "scan": "scan",
    "show": "show",
    "gate": "gate",
    "explain": "explain",
    "import": "import_log",
    "watch": "watch",
    "report": "report",
    "diff": "diff",
    "samples": "samples",
    "query": "query",
    "ls": "ls",
    "compact": "compact",
    "calibrate": "calibrate",
    "demo": "demo",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        _tolerate(stream)
    try:
        code = application()(words or ["--help"], prog_name="rlprobe", standalone_mode=False)
    except RlprobeError as error:
        complain(error)
        return UNREADABLE
    except BrokenPipeError:
        silence()
        return 0
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:  # the outermost wall: a traceback would exit with 1, "findings"
        return _fault(error)
    return UNREADABLE if not words else int(code or 0)


def application() -> typer.Typer:
    """The command line with every verb that is installed."""
    app = typer.Typer(
        help="Flight recorder and doctor for RL fine-tuning runs.",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for verb, module in VERBS.items():
        name = f"rlprobe.cli.{module}"
        if find_spec(name) is not None:
            loaded = import_module(name)
            settings = getattr(loaded, "CONTEXT", None)
            app.command(verb, context_settings=settings)(getattr(loaded, module))
    return app


def _version(wanted: bool) -> None:
    if wanted:
        print(f"rlprobe {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Flight recorder and doctor for RL fine-tuning runs."""


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
        hint="RLPROBE_DEBUG=1 shows the traceback; please report it.",
    )
    fault.__cause__ = error
    complain(fault)
    return COULD_NOT_JUDGE
