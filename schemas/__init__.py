"""Data that describes recordings, metrics, framework keys, failures and reports."""
