"""A small real training, recorded, scanned and shown: `rlprobe demo`."""
