"""What other flight recorders leave behind."""
