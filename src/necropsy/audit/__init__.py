"""Collects what ``necropsy check`` judges: built libraries. The rules on them are in ``rules/op``."""
