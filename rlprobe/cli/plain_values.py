"""Values of options that are words, paths or flags need no validator.

Typer (0.29, for one) coerces every value through one whose import costs more than to scan a log of
1,000 rows. Where a typer has no such validator, or keeps it elsewhere, nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer

from rlprobe.errors import UsageError


def check_path(path: str) -> None:
    """Raise UsageError for an empty path, which is no place."""
    if not path:
        raise UsageError(
            "Couldn't use '' as a path: it is empty",
            hint="Give one ('.' is the directory you are in); was a variable of the shell not set?",
        )


def _path(value: str | Path) -> Path:
    check_path(str(value))
    return Path(value)


_CONVERTED: dict[Any, Callable[[Any], Any]] = {
    str: str,
    bool: bool,
    Path: _path,
    list[str]: str,
    list[Path]: _path,
}
_VALIDATOR = "_runtime_param"  # where typer keeps it, made on first use


class _AsGiven:
    """Stands for the validator of one parameter."""

    def __init__(self, convert: Callable[[Any], Any]) -> None:
        self._convert = convert

    def coerce(self, value: Any, param: Any, ctx: object) -> Any:
        """The value as the verb wants it: one, or a list of them."""
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        return [self._convert(item) for item in value] if several else self._convert(value)


def without_validators(command: Any, help_names: Sequence[str]) -> Any:
    """The command with the values of its verbs' plain parameters taken as they are given."""
    for verb in (command, *getattr(command, "commands", {}).values()):
        context = typer.Context(verb, help_option_names=list(help_names))
        for parameter in verb.get_params(context):
            _spare(parameter)
    return command


def _spare(parameter: Any) -> None:
    kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    convert = next((how for known, how in _CONVERTED.items() if known == kind), None)
    if convert is not None and getattr(parameter, _VALIDATOR, "absent") is None:
        setattr(parameter, _VALIDATOR, _AsGiven(convert))
