"""What is on disk, and how it is read back. Nothing outside this room opens Parquet.

files     atomic, durable file operations
layout    names: where everything lies in a run directory
shards    Parquet shards: written, listed, merged
manifest  run.json and the attempts
frame     rows of a table as columns, loaded on demand
run       the Run interface; a recording behind it
table     the same interface over columns in memory (foreign logs)
sql       the tables as DuckDB views
"""
