"""``contain``: real processes die, and the caller goes on."""

from __future__ import annotations

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

import contain_jobs as jobs
import necropsy
from necropsy.contain import Crashed, TimedOut, contain, contained, process

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="these deaths are those of Linux")


def test_a_call_returns_what_the_function_returns_from_a_worker_that_is_used_again() -> None:
    assert contain(jobs.add)(1, b=5) == 6
    first = contain(jobs.pid)()
    assert first != os.getpid()
    assert contain(jobs.pid)() == first


def test_the_callable_keeps_name_and_signature() -> None:
    made = contain(jobs.add)
    assert (made.__name__, made.__doc__, made.__module__) == ("add", jobs.add.__doc__, "contain_jobs")
    assert contain(made)(1) == 2


def test_a_crash_says_why_and_the_next_call_works() -> None:
    with pytest.raises(Crashed) as caught:
        contain(jobs.crash)()
    crashed = caught.value
    assert (crashed.rule, crashed.signal, crashed.exit_code) == ("null-dereference", "SIGSEGV", None)
    assert [frame["function"] for frame in crashed.python] == ["string_at", "crash"]
    assert crashed.function == "string_at" and crashed.function in str(crashed)
    assert crashed.report is not None and crashed.signature == crashed.report.reports[0].signature
    assert contain(jobs.add)(1) == 2


def test_a_crash_in_another_thread_of_the_worker() -> None:
    with pytest.raises(Crashed) as caught:
        contain(jobs.crash_in_a_thread)()
    assert caught.value.rule == "null-dereference"
    assert "crash" in [frame["function"] for frame in caught.value.python]


def test_the_text_of_a_failed_check_is_in_the_message(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Crashed, match=r"shape\.dims\(\) == 2") as caught:
        contain(jobs.check_fails)()
    assert caught.value.rule == "check-failed"
    assert "Check failed" in capfd.readouterr().err


def test_an_exit_code_is_a_death() -> None:
    with pytest.raises(Crashed, match="exit code 3") as caught:
        contain(jobs.leave)(3)
    assert (caught.value.exit_code, caught.value.signal) == (3, None)


def test_an_exception_comes_back_as_itself_with_the_traceback_of_the_worker() -> None:
    with pytest.raises(KeyError) as caught:
        contain(jobs.fail)("missing")
    assert caught.value.args == ("missing",)
    assert "in fail" in str(caught.value.__cause__)


def test_an_exception_that_does_not_unpickle_is_told_in_words() -> None:
    with pytest.raises(RuntimeError, match="OddError: 3: odd"):
        contain(jobs.fail_oddly)()


def test_what_does_not_pickle_is_a_type_error_and_the_worker_stays() -> None:
    before = contain(jobs.pid)()
    with pytest.raises(TypeError, match="argument of add cannot be pickled"):
        contain(jobs.add)(jobs.lock())
    with pytest.raises(TypeError, match="could not be sent back"):
        contain(jobs.lock)()
    assert contain(jobs.pid)() == before


@pytest.mark.parametrize(("job", "name"), [(jobs.busy_in_python, "busy_in_python"), (jobs.busy_in_c, "busy_in_c")])
def test_a_call_that_takes_too_long_says_where_it_stood(job: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_STACKS_S", 120.0)  # reading them takes longer on a busy machine
    with pytest.raises(TimedOut, match=f"{name} did not return within 2 s") as caught:
        contain(job, timeout=2)()
    assert isinstance(caught.value, Crashed)
    assert [frame["function"] for frame in caught.value.python] == [name]
    assert f"in {name}, " in str(caught.value)
    if name == "busy_in_c":
        assert caught.value.function is not None and f"native function `{caught.value.function}`" in str(caught.value)


@pytest.mark.skipif(sys.platform != "linux", reason="address space is limited on Linux only")
def test_a_memory_limit_is_for_one_call() -> None:
    with pytest.raises(MemoryError):
        contain(jobs.allocate, memory=50_000_000)(200_000_000)
    assert contain(jobs.allocate)(200_000_000) == 200_000_000


def test_output_of_the_worker_is_the_callers(capfd: pytest.CaptureFixture[str]) -> None:
    contain(jobs.say)("words")
    shown = capfd.readouterr()
    assert sorted(shown.out.split("\n")) == ["", "from C", "words"]
    assert shown.err == "WORDS\n"


def test_ctrl_c_ends_the_worker(capfd: pytest.CaptureFixture[str]) -> None:
    before = contain(jobs.pid)()
    with pytest.raises(KeyboardInterrupt):
        contain(jobs.interrupt)(os.getpid())
    assert contain(jobs.pid)() != before


def test_lambdas_closures_and_methods() -> None:
    factor = 3

    def times(x: int) -> int:
        return x * factor

    assert contain(lambda x: x + factor)(1) == 4
    assert contain(lambda: necropsy.Crashed.__name__)() == "Crashed"
    assert contain(times)(2) == 6
    assert contain(jobs.Account(1).plus)(2).balance == 3
    assert jobs.Account(9).minus(4) == 5


def test_generators_give_their_values_one_by_one() -> None:
    assert list(jobs.three()) == [0, 1, 2]
    values = jobs.three(fails=True)
    assert [next(values), next(values), next(values)] == [0, 1, 2]
    with pytest.raises(KeyError):
        next(values)
    endless = [jobs.forever() for _ in range(3)]
    assert list(zip(*(zip(range(2), one, strict=False) for one in endless), strict=True))[-1] == ((1, 1),) * 3


def test_coroutines_run_at_the_same_time() -> None:
    async def main() -> Any:
        return await asyncio.gather(*(jobs.later(number) for number in range(4)))

    assert asyncio.run(main()) == [0, 1, 2, 3]


def test_a_cancelled_task_ends_its_worker() -> None:
    @contained
    async def long() -> None:
        await asyncio.sleep(600)

    async def main() -> Any:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(long(), 0.2)
        return await jobs.later(7)

    assert asyncio.run(main()) == 7


def test_threads_call_at_once_each_with_a_worker() -> None:
    add = contain(jobs.add, workers=2)
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(add, range(40))) == list(range(1, 41))


def test_a_death_inside_of_a_contained_call_reaches_the_outer_caller() -> None:
    with pytest.raises(Crashed) as caught:
        contain(jobs.nested)()
    assert caught.value.exit_code == 5
    with pytest.raises(Crashed) as caught:
        contain(jobs.nested_crash)()
    crashed = caught.value
    assert (crashed.rule, crashed.signal) == ("null-dereference", "SIGSEGV")
    assert [frame["function"] for frame in crashed.python] == ["string_at", "crash"]


@pytest.mark.parametrize("limits", [{"timeout": 0}, {"memory": -1}, {"workers": 0}])
def test_limits_that_are_not_positive(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be greater than 0"):
        contain(jobs.add, **limits)


def test_what_cannot_be_contained() -> None:
    async def values() -> Any:
        yield 1

    with pytest.raises(TypeError, match="takes a function, not 3"):
        contain(cast("Any", 3))
    with pytest.raises(TypeError, match="asynchronous generator"):
        contain(values)
