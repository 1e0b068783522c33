"""How a Parquet file is opened: by the thread that asks, and by no other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow.parquet as pq


def opened(
    source: Path | BinaryIO, texts: Sequence[str] = (), *, check_pages: bool = True
) -> pq.ParquetFile:
    """A Parquet file, nothing of which is read ahead.

    Arrow reads ahead on threads of its own. One that lets go of Python's memory takes the
    interpreter's lock; where the process ends just then, it aborts, after all its work:
    https://github.com/apache/arrow/issues/34314.

    Args:
        texts: columns whose texts stay in their dictionary.
        check_pages: against their checksums, where they have any.
    """
    return pq.ParquetFile(
        source,
        read_dictionary=list(texts),
        page_checksum_verification=check_pages,
        pre_buffer=False,
    )
