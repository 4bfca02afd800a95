"""Items, and where they come from."""

import csv
from dataclasses import dataclass, field


@dataclass
class Item:
    code: str
    count: int
    price: float
    tags: list = field(default_factory=list)

    @property
    def value(self):
        return self.count * self.price


def read(path):
    items = []
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            try:
                item = Item(row["code"], int(row["count"]), float(row["price"]))
            except (KeyError, ValueError):
                continue
            item.tags = [tag for tag in row["tags"].split("|") if tag]
            items.append(item)
    return items
