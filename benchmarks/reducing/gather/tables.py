"""Reads the tables and cleans them."""

import csv
import logging

log = logging.getLogger("tables")


def read_rows(path, encoding="utf-8"):
    with open(path, newline="", encoding=encoding) as file:
        rows = list(csv.DictReader(file))
    log.info("read %d rows from %s", len(rows), path)
    return rows


def without_gaps(rows, columns):
    kept = []
    for row in rows:
        if all(row[column] != "" for column in columns):
            kept.append(row)
        else:
            log.debug("left out %s", row)
    return kept


def numbers(rows, column, kind=int):
    values = []
    for row in rows:
        try:
            values.append(kind(row[column]))
        except ValueError:
            values.append(0)
    return values


def histogram(values, bins=10):
    low, high = min(values), max(values)
    width = (high - low) / bins or 1
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, int((value - low) / width))] += 1
    return counts
