"""Settings from a file and from the environment."""

import configparser
import os
from dataclasses import dataclass


@dataclass
class Settings:
    block: int = 16
    currency: str = "EUR"
    rate: float = 1.0
    strict: bool = False


def load(path):
    parser = configparser.ConfigParser()
    parser.read(path)
    section = parser["report"] if "report" in parser else {}
    settings = Settings()
    settings.block = int(section.get("block", settings.block))
    settings.currency = section.get("currency", settings.currency)
    settings.rate = float(os.environ.get("INVENTORY_RATE", section.get("rate", settings.rate)))
    return settings
