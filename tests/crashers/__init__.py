"""Crashers: small programs that die, each in one way, and what compiles them."""
