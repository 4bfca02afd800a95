"""What in a text is a secret. ``redact`` loads this for suspicious texts only: to read the table takes milliseconds."""
