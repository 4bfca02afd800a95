"""Arrays on their way to a worker and back: shared memory that is used again, and is the receiver's own."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import contain_jobs as jobs
from necropsy.contain import Contained, contain, segments
from necropsy.contain.messages import MessageChannel, loads, packed

pytestmark = pytest.mark.skipif(not segments.AVAILABLE, reason="memfd_create is a system call of Linux")
np = pytest.importorskip("numpy")

SIZE = 200_000


@pytest.fixture
def ends() -> Iterator[tuple[MessageChannel, MessageChannel]]:
    one, other = socket.socketpair()
    pair = MessageChannel(one), MessageChannel(other)
    yield pair
    for end in pair:
        end.close()


def sent(ends: tuple[MessageChannel, MessageChannel], value: Any) -> Any:
    with ThreadPoolExecutor(1) as thread:  # a socket holds no more than some 100 KB
        thread.submit(ends[0].post, packed(value))
        return loads(ends[1].take())


def files() -> set[int]:
    """The segments that this process has open."""
    handles = [one for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
    return {one.stat().st_ino for one in handles if one.exists() and "necropsy-segment" in os.readlink(one)}


def test_several_arrays_of_all_kinds_arrive_as_they_were(ends: tuple[MessageChannel, MessageChannel]) -> None:
    frozen = np.arange(SIZE)
    frozen.flags.writeable = False
    value = {
        "f": np.asfortranarray(np.random.default_rng(1).random((300, 200))),
        "frozen": frozen,
        "strided": np.arange(SIZE)[::3],
        "empty": np.empty((0, 5)),
        "small": np.arange(3),
        "words": ["x" * SIZE],
    }
    got = sent(ends, value)
    assert got.keys() == value.keys() and got["words"] == value["words"]
    for name in ("f", "frozen", "strided", "empty", "small"):
        assert np.array_equal(got[name], value[name])
    assert got["f"].flags.writeable and got["f"].flags.f_contiguous


def test_a_segment_is_used_again_when_its_array_has_died(ends: tuple[MessageChannel, MessageChannel]) -> None:
    before = files()
    for number in range(20):
        got = sent(ends, np.full(SIZE, number))
        assert got[0] == got[-1] == number
        del got
    assert len(files() - before) == 1


def test_an_array_that_is_kept_is_never_overwritten(ends: tuple[MessageChannel, MessageChannel]) -> None:
    kept = [sent(ends, np.full(SIZE, number)) for number in range(20)]
    views = [one[5:7] for one in kept]
    kept[3] += 100
    del kept
    assert [int(view[0]) for view in views] == [103 if number == 3 else number for number in range(20)]
    assert len(files()) <= 20 + 1


def test_a_larger_array_after_a_small_one(ends: tuple[MessageChannel, MessageChannel]) -> None:
    for size in (SIZE, 3 * SIZE, SIZE // 2, 7 * SIZE):
        assert np.array_equal(sent(ends, np.arange(size)), np.arange(size))


def test_a_long_pickle_goes_the_same_way(ends: tuple[MessageChannel, MessageChannel]) -> None:
    value = [b"x" * 3_000_000, list(range(1000)), np.arange(SIZE)]
    got = sent(ends, value)
    assert got[:2] == value[:2] and np.array_equal(got[2], value[2])


def test_without_descriptors_the_buffers_go_through_the_socket() -> None:
    one, other = socket.socketpair()
    ends = MessageChannel(one), MessageChannel(other)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        got = sent(ends, np.arange(10_000))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for end in ends:
            end.close()
    assert np.array_equal(got, np.arange(10_000)) and got.flags.writeable


def test_a_fork_has_the_array_and_neither_sees_what_the_other_writes(
    ends: tuple[MessageChannel, MessageChannel],
) -> None:
    array = sent(ends, np.zeros(SIZE))
    array[0] = 1
    done, begin = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        array[1] = 2
        os.write(done[1], b"x")
        os.read(begin[0], 1)
        os._exit(0 if (array[0], array[1], array[2], array[3]) == (1, 2, 0, 0) else 1)
    os.read(done[0], 1)
    assert (array[0], array[1]) == (1, 0)
    array[2] = 3
    del array
    assert sent(ends, np.full(SIZE, 7.0))[3] == 7
    os.write(begin[1], b"x")
    assert os.waitpid(child, 0)[1] == 0
    for handle in (*done, *begin):
        os.close(handle)


def test_calls_take_and_return_arrays_that_are_the_callers_own() -> None:
    array = np.zeros(SIZE)
    plus = contain(jobs.plus_one)
    first = plus(array)
    second = plus(first)
    first -= 5
    assert (array[0], first[0], second[0]) == (0, -4, 2)


def test_values_of_a_generator_and_results_of_map() -> None:
    assert [int(one[-1]) for one in list(contain(jobs.arrays)(5, SIZE))] == [0, 1, 2, 3, 4]
    with Contained(workers=1) as pool:
        records = [np.full(SIZE, number) for number in range(5)]
        assert [int(one[-1]) for one in pool.map(jobs.plus_one, records)] == [1, 2, 3, 4, 5]


def test_a_worker_that_dies_costs_no_array_that_it_gave() -> None:
    with Contained(workers=1) as pool:
        got = pool.call(jobs.plus_one, np.zeros(SIZE))
        with pytest.raises(Exception, match="exit code 3"):
            pool.call(jobs.leave, 3)
        assert pool.call(jobs.plus_one, np.ones(SIZE))[0] == 2
        assert got[0] == got[-1] == 1


def test_functions_that_go_by_value_take_arrays() -> None:
    assert contain(lambda one: one.sum())(np.ones(SIZE)) == SIZE
