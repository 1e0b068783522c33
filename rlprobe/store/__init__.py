"""What is on disk, and how it is read back. Nothing outside this room opens Parquet.

files       atomic, durable file operations
modes       who may read what is written
living      whether the process that wrote a file still lives
leftovers   temporary files, and what dead writers left of them
layout      names: where everything lies in a run directory
checksum    the checksum that a file carries of itself
limits      how much is read of what somebody else wrote
admission   files of a run directory, opened only where they are what they should be
json_object the JSON objects of a run directory, field by field
parquet_file  how a Parquet file is opened: read by one thread
shard_file  one shard, open for reading: whole, and within limits
table_shards    the live shards of a table
fitting     stored columns as the types that they should have
metric_shards   shards of steps and ranks as a frame
records     shards of events and samples as tables
sample_shards   the rollouts as they are asked for
event_data  the data of events, field by field
sql_source  a table's shards as DuckDB reads them
text        text as it can be stored
faults      whether an exception is a value's own doing
codec       events, rollouts and rows of metrics <-> rows of the tables
shards      Parquet shards: written, merged
compaction  the shards of finished writers, merged
manifest    run.json and the attempts
processes   the processes of an attempt
occupancy   whether another run is being recorded into a directory
arrow       Arrow arrays from and to NumPy and lists
frame       rows of a table as columns, loaded on demand
one_per_step  rows of one step as one
run         the Run interface
recording   a recording behind it
table       columns in memory behind it (foreign logs)
from_run    any run -> a recording
sql         the tables as DuckDB views
json_lines  lines of JSON as columns, through DuckDB

foreign_parquet   Parquet files that rlprobe did not write, bounded
foreign_arrow     Arrow files and streams that rlprobe did not write, bounded
"""
