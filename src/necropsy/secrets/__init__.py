"""What in a text is a secret. ``mask`` loads this where a text is suspicious: to read the table takes milliseconds."""
