"""Lines of JSON -> columns, by an engine that reads many of them at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlprobe._lazy import cached_property

if TYPE_CHECKING:
    import duckdb

_THREADS = 4


class JSONEngine:
    """Runs a query over a table of `lines`; loaded on first use."""

    @cached_property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        import duckdb

        return duckdb.connect(":memory:", config={"threads": min(_THREADS, os.cpu_count() or 1)})

    def columns(self, lines: Any, query: str) -> Mapping[str, Any] | None:
        """NumPy columns by their names; None where some line is no JSON or does not fit."""
        import duckdb

        try:
            self._connection.register("lines", lines)
            return self._connection.execute(query).fetchnumpy()
        except (duckdb.Error, ValueError):
            return None
