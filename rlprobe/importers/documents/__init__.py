"""Rows in plain files: JSON Lines, JSON documents, tables with a delimiter, Parquet."""
