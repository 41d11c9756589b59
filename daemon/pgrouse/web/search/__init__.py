"""What lists look for, and how many there are."""
