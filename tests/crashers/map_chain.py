"""An iterator over an iterator over an iterator: each level is a call in C, and CPython does not count them."""

chain = iter([1])
for _ in range(1_000_000):
    chain = map(abs, chain)


def take() -> None:
    print(next(chain))  # the line


take()
