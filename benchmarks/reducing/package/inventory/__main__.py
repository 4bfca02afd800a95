"""``python -m inventory REPORT``."""

import argparse
import logging

from inventory import VERSION, items, reports, settings
from inventory.registry import run

log = logging.getLogger("inventory")


def main():
    parser = argparse.ArgumentParser(prog="inventory")
    parser.add_argument("report", nargs="+")
    parser.add_argument("--data", default="stock.csv")
    parser.add_argument("--settings", default="report.ini")
    parser.add_argument("--version", action="version", version=VERSION)
    options = parser.parse_args()
    loaded = settings.load(options.settings)
    stock = items.read(options.data)
    log.info("%d items, %s", len(stock), reports.__doc__)
    for name in options.report:
        print(name)
        for line in run(name, stock, loaded):
            print("  " + line)


if __name__ == "__main__":
    main()
