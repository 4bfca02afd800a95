"""Reports by name."""

REPORTS = {}


def report(name):
    def register(function):
        REPORTS[name] = function
        return function

    return register


def run(name, items, settings):
    if name not in REPORTS:
        raise SystemExit(f"no report {name}: {', '.join(sorted(REPORTS))}")
    return REPORTS[name](items, settings)
