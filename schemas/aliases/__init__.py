"""One TOML file per framework: its keys, and the metric each of them is."""
