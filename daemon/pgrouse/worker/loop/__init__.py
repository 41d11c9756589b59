"""What a daemon does again and again: claim, listen, extend locks."""
