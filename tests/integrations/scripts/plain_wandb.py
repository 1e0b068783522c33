"""A loop that logs to wandb: plain_wandb.py OUT offline|disabled."""

import json
import math
import random
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import outcome
import wandb
from wandb.proto import wandb_internal_pb2

OWN = {"_timestamp", "_runtime"}
out, mode = sys.argv[1:]
outcome.seed(3)
rows = []
run = wandb.init(project="plain", mode=mode, settings=wandb.Settings(silent=True, console="off"))
wandb.define_metric("custom_step")
wandb.define_metric("val/*", step_metric="custom_step")
weight = 5.0
for step in range(30):
    gradient = 2 * weight + random.gauss(0, 0.1)
    weight -= 0.05 * gradient
    row = {"loss": weight**2, "grad_norm": abs(gradient), "inner": {"lr": 0.05}}
    if step == 7:
        row["loss"] = math.nan
    wandb.log(row, step=step)
    rows.append(
        {"_step": step, "loss": row["loss"], "grad_norm": row["grad_norm"], "inner.lr": 0.05}
    )


def records(data: bytes) -> Iterator[bytes]:
    """What is in wandb's own file: blocks of 32 KiB, in which each piece says its size and kind."""
    place, parts = 7, b""
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        size, kind = struct.unpack_from("<HB", data, place + 4)
        parts += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in {1, 4}:  # whole, or the last of several
            yield parts
            parts = b""


def stored() -> outcome.Stored:
    """The history that wandb wrote."""
    (path,) = Path().glob("wandb/offline-run-*/*.wandb")
    found = []
    for data in records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            names = [".".join([*item.nested_key] or [item.key]) for item in items]
            values = [json.loads(item.value_json) for item in items]
            found.append({n: v for n, v in zip(names, values, strict=True) if n not in OWN})
    return outcome.by_name(found, "_step")


wandb.finish()
outcome.write(
    out, stored() if mode == "offline" else outcome.by_name(rows, "_step"), outcome.digest()
)
