"""Reads what a store has and writes reports."""

VERSION = "2.4"
