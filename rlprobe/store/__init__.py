"""What is on disk, and how it is read back. Nothing outside this room opens Parquet.

files       atomic, durable file operations
layout      names: where everything lies in a run directory
checksum    the checksum that a file carries of itself
text        text as it can be stored
codec       events, rollouts and rows of metrics <-> rows of the tables
shards      Parquet shards: written, listed, merged
compaction  the shards of finished writers, merged
manifest    run.json and the attempts
arrow       Arrow arrays from and to NumPy and lists
frame       rows of a table as columns, loaded on demand
run         the Run interface
recording   a recording behind it
table       columns in memory behind it (foreign logs)
from_run    any run -> a recording
sql         the tables as DuckDB views
json_lines  lines of JSON as columns, through DuckDB

foreign_parquet   Parquet files that rlprobe did not write, bounded
foreign_arrow     Arrow files and streams that rlprobe did not write, bounded
"""
