"""Calls whose arguments do not fit: what can be kept of them is, and nothing raises into training.

Python itself raises where an argument is missing, unknown or in the wrong place, before a method
could catch anything.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from rlprobe.recorder.health import Health
from rlprobe.store.text import text_of

_MOST_NAMED = 3

P = ParamSpec("P")
R = TypeVar("R")


class HasHealth(Protocol):
    """Whose calls these are."""

    @property
    def health(self) -> Health: ...  # noqa: D102


H = TypeVar("H", bound=HasHealth)
Method = Callable[Concatenate[H, P], R]


def harmless(what: str, otherwise: R) -> Callable[[Method[H, P, R]], Method[H, P, R]]:
    """A method that never raises for its arguments.

    A mapping in the place of arguments is taken for them. What the method does not know is left
    out, and counted; a call that lacks what it needs is counted and warned of.

    Args:
        what: what is recorded, in the words of warnings and counts.
        otherwise: what is returned where nothing could be recorded.
    """

    def decorate(method: Method[H, P, R]) -> Method[H, P, R]:
        @functools.wraps(method)
        def call(self: H, /, *args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return method(self, *args, **kwargs)
            except TypeError as error:  # of the call itself: methods catch their own
                return _fitted(method, self, args, kwargs, error)
            except Exception as error:
                self.health.fail(what, error)
                return otherwise

        def _fitted(
            method: Any, self: H, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
        ) -> R:
            try:
                fitting, named = _sorted_out(method, args, kwargs)
                if named or fitting != (args, kwargs):
                    _leave_out(self.health, what, named)
                    result: R = method(self, *fitting[0], **fitting[1])
                    return result
                self.health.fail(what, error)
            except Exception as again:
                self.health.fail(what, again)
            return otherwise

        return call

    return decorate


def merged(
    health: Health, table: str, given: tuple[Any, ...], metrics: dict[str, Any]
) -> dict[str, Any]:
    """Metrics with those of mappings that were given beside the step."""
    mappings = [value for value in given if isinstance(value, Mapping)]
    rest = [repr(text_of(value)[:40]) for value in given if not isinstance(value, Mapping)]
    _leave_out(health, f"record {table}", rest)
    return {text_of(k): v for one in mappings for k, v in one.items()} | metrics


def _leave_out(health: Health, what: str, arguments: list[str]) -> None:
    """Count arguments that have no place, and say it once."""
    if arguments:
        health.count("arguments_left_out", len(arguments))
        names = ", ".join(arguments[:_MOST_NAMED])
        health.warn(
            f"arguments {what}", f"rlprobe: could not {what} with {names}: no such argument"
        )


def _sorted_out(
    method: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[tuple[Any, ...], dict[str, Any]], list[str]]:
    """Arguments that the method takes, and words for those that it does not."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    kinds = {parameter.kind for parameter in parameters}
    positional = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    places = sum(parameter.kind in positional for parameter in parameters)
    mappings = [value for value in args if isinstance(value, Mapping)]
    plain = [value for value in args if not isinstance(value, Mapping)]
    merged = {str(key): value for one in mappings for key, value in one.items()} | dict(kwargs)
    known = merged
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        takes = {parameter.name for parameter in parameters}
        known = {name: value for name, value in merged.items() if name in takes}
    unknown = [repr(text_of(name)[:40]) for name in merged if name not in known]
    unknown += [repr(text_of(value)[:40]) for value in plain[places:]]
    return (tuple(plain[:places]), known), unknown
