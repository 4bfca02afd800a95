"""``contain``: a function that runs in a worker process, so that its crash becomes an exception."""

from __future__ import annotations

import functools
import inspect
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from necropsy.contain.functions import MARK, original
from necropsy.contain.pool import Call, Pool, name_of, positive
from necropsy.crashed import Crashed

if TYPE_CHECKING:
    import asyncio

P = ParamSpec("P")
R = TypeVar("R")

_POOLS: dict[tuple[int | None, tuple[str, ...]], Pool] = {}
_POOLS_LOCK = threading.Lock()


def _in_forked_child() -> None:
    global _POOLS_LOCK  # noqa: PLW0603 - another thread of the parent may have held it
    _POOLS_LOCK = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)


def shared_pool(workers: int | None, imports: tuple[str, ...]) -> Pool:
    """The pool of all contained functions with the same needs."""
    with _POOLS_LOCK:
        return _POOLS.setdefault((workers, imports), Pool(workers, imports))


def contain(
    function: Callable[P, R],
    *,
    timeout: float | None = None,
    memory: int | None = None,
    imports: Iterable[str] = (),
    workers: int | None = None,
) -> Callable[P, R]:
    """Make a callable that runs ``function`` in a worker process.

    A crash of the worker raises ``Crashed``, which says why; what the function raises comes back as it is, and so does
    what it returns. Arguments and results are pickled. Generator functions give their values one by one; coroutine
    functions can be awaited.

    Args:
        function: the function, method, lambda or closure to run.
        timeout: seconds for a call, or for each value of a generator; then ``TimedOut`` is raised.
        memory: bytes of address space that a call may take over what the worker has already.
        imports: modules that workers import when they start, before their first call.
        workers: how many calls run at once; by default, the number of CPUs. Contained functions with the same
            ``imports`` and ``workers`` share their workers.

    Raises:
        TypeError: it cannot be called, or it is an asynchronous generator function.
        ValueError: a limit is not positive.

    """
    if not callable(function):
        raise TypeError(f"contain takes a function, not {function!r}")
    if inspect.isasyncgenfunction(function):
        raise TypeError(f"{name_of(function)} is an asynchronous generator function, which cannot be contained")
    positive(timeout=timeout, memory=memory, workers=workers)
    if isinstance(imports, str):
        imports = (imports,)
    wanted = tuple(imports)
    inner = original(function)
    streams = inspect.isgeneratorfunction(inner)

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        return Call(inner, args, kwargs, timeout=timeout, memory=memory, mode="values" if streams else "call")

    def pool() -> Pool:
        return shared_pool(workers, wanted)

    made: Any
    if streams:

        def made(*args: Any, **kwargs: Any) -> Iterator[Any]:
            return call(args, kwargs).values(pool())

    elif inspect.iscoroutinefunction(inner):

        async def made(*args: Any, **kwargs: Any) -> Any:
            return await in_thread(call(args, kwargs), pool())

    else:

        def made(*args: Any, **kwargs: Any) -> Any:
            return call(args, kwargs).run(pool())

    if hasattr(inner, "__name__"):
        made = functools.wraps(inner)(made)
    setattr(made, MARK, inner)
    result: Callable[P, R] = made
    return result


@overload
def contained(function: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def contained(
    *, timeout: float | None = None, memory: int | None = None, imports: Iterable[str] = (), workers: int | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def contained(function: Any = None, /, **limits: Any) -> Any:
    """``contain`` as a decorator: ``@contained``, or ``@contained(timeout=1)``."""
    if function is not None:
        return contain(function, **limits)
    return functools.partial(contain, **limits)


def raises_native(function: Callable[..., Any], /, *args: Any, rule: str | None = None) -> Crashed:
    """A death test: run the function in a worker process, and return the ``Crashed`` of its death.

    ``rule``: the rule that must have recognised the cause, such as ``"null-dereference"``.

    Raises:
        AssertionError: it did not die, or another rule recognised the cause.

    """
    name = name_of(function)
    try:
        contain(function)(*args)
    except Crashed as crashed:
        if rule is not None and crashed.rule != rule:
            raise AssertionError(f"{name} died of {crashed.rule}, not of {rule}: {crashed}") from crashed
        return crashed
    except Exception as error:
        raise AssertionError(f"{name} did not die; it raised {type(error).__name__}: {error}") from error
    raise AssertionError(f"{name} did not die")


async def in_thread(call: Call, pool: Pool) -> Any:
    """What the call returns; the event loop goes on meanwhile. A cancelled task ends the worker."""
    import asyncio  # whoever awaits has loaded it

    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    def work() -> None:
        result, error = None, None
        try:
            result = call.run(pool)
        except BaseException as raised:  # noqa: BLE001 - it is the awaiting task's
            error = raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=work, daemon=True, name="necropsy-contain").start()
    try:
        return await future
    except asyncio.CancelledError:
        call.cancel()
        raise
