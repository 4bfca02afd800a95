"""Formats of crashes: of the deaths in a report, and of the bugs of a triage."""
