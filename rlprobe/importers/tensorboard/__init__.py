"""TensorBoard event files.

event_files       the format: one file, or a directory of them
tfrecord, crc32c  the framing of records, and their checksums
events, scalar    records -> points
"""
