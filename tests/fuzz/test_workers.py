"""What a worker does around a call: the stack that it is made on, and the digest of its result. No TensorFlow."""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
from collections.abc import Callable

import numpy as np
import pytest

from necropsy.fuzz.boundaries import LARGE
from necropsy.fuzz.definitions import OpDefinition, python_function
from necropsy.fuzz.generator import Generator, Seen
from necropsy.fuzz.limits import Limits, limits_of
from necropsy.fuzz.recipes import Recipe
from necropsy.fuzz.target.worker import digest_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked")

KIB = 1 << 10


def size_of_stack() -> int:
    """Bytes of this thread's stack, by pthread_getattr_np(3)."""
    libc = ctypes.CDLL(None)
    libc.pthread_self.restype = ctypes.c_ulong
    attributes = ctypes.create_string_buffer(256)
    low, size = ctypes.c_void_p(), ctypes.c_size_t()
    assert libc.pthread_getattr_np(ctypes.c_ulong(libc.pthread_self()), attributes) == 0
    assert libc.pthread_attr_getstack(attributes, ctypes.byref(low), ctypes.byref(size)) == 0
    libc.pthread_attr_destroy(attributes)
    return size.value


def run(size: int, work: Callable[[], None]) -> None:
    from necropsy.fuzz.target import small_stack  # not for Windows

    small_stack.run(size, work)


@pytest.mark.parametrize("size", [64 * KIB, 512 * KIB, 512 * KIB + 1])
def test_work_runs_on_a_stack_of_the_size_that_is_wanted(size: int) -> None:
    sizes: list[int] = []
    run(size, lambda: sizes.append(size_of_stack()))
    assert sizes == [-(-size // 4096) * 4096]


@pytest.mark.parametrize("kind", [ValueError, SystemExit])
def test_what_the_work_raises_is_raised(kind: type[BaseException]) -> None:
    def work() -> None:
        raise kind("so")

    with pytest.raises(kind, match="so"):
        run(512 * KIB, work)


def test_a_stack_that_the_system_does_not_have() -> None:
    from necropsy.fuzz.target import small_stack  # not for Windows

    with pytest.raises(small_stack.NoStackError, match="no memory"):
        run(1 << 60, lambda: None)


def test_no_memory_of_a_stack_stays() -> None:
    def mapped() -> int:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) << 12

    run(512 * KIB, lambda: None)
    before = mapped()
    for _ in range(10):
        run(512 * KIB, lambda: None)
    assert mapped() - before < 128 << 20


def test_a_call_gets_memory_beyond_what_the_process_has() -> None:
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        (has,) = (int(line.split()[1]) << 10 for line in file if line.startswith("VmData:"))
    of_an_op, of_a_function = (limits_of(os.getpid(), is_python=one).data or 0 for one in (False, True))
    assert of_an_op > has + (256 << 20)
    assert of_a_function > of_an_op + (512 << 20)


def test_a_process_that_is_gone_has_the_usual_limits() -> None:
    assert limits_of(1 << 30, is_python=False) == Limits()


def test_the_digest_of_a_large_result_is_that_of_its_places() -> None:
    one = np.zeros(1_000_000, np.float32)
    other, last, shaped = one.copy(), one.copy(), one.reshape(1000, 1000)
    other[:1000] = 1
    last[-1] = 1
    assert digest_of(one) == digest_of(one.copy())
    assert {size for _, size in map(digest_of, (one, other, last, shaped))} == {4_000_000}
    assert len({digest for digest, _ in map(digest_of, (one, other, last, shaped))}) == 4


def test_the_digest_of_what_is_no_array() -> None:
    several = [1, "a", b"a", [1, 2], (1, [2]), np.array(["a"], object), np.zeros(2), np.zeros((2, 1)), np.int32(0)]
    digests = [digest_of(one)[0] for one in several]
    assert len(set(digests)) == len(digests)
    assert digest_of([np.zeros(2), 1, np.zeros(3, np.int8)])[1] == 19


@pytest.fixture
def op() -> OpDefinition:
    parameters = [{"name": "values", "kind": "ndarray", "by_name": True, "needed": True}]
    return python_function({"name": "f", "parameters": parameters, "numpy": True, "arrays": True})


def last_stage(op: OpDefinition, size_of_result: Callable[[Recipe], int]) -> list[Recipe]:
    """3,000 calls of the last stage, if all calls before were accepted with results of these bytes."""
    seen = Seen()
    proposals = Generator(op, 0, seen).proposals()
    for proposal in itertools.islice(proposals, 3000):
        seen.note(proposal.recipe, accepted=True, text=None, size=size_of_result(proposal.recipe))
    return [one.recipe for one in itertools.islice(proposals, 3000)]


def test_large_calls_are_rare_in_the_last_stage(op: OpDefinition) -> None:
    assert 0 < sum(one.elements >= LARGE for one in last_stage(op, lambda _recipe: 0)) < 300


def test_calls_like_one_with_a_large_result_are_rare_in_the_last_stage(op: OpDefinition) -> None:
    def matrices(recipes: list[Recipe]) -> int:
        return sum(len(tensor.shape) >= 2 for one in recipes for tensor in one.tensors())

    def large_of_matrices(recipe: Recipe) -> int:
        return (1 << 20) * matrices([recipe])

    assert 0 < 2 * matrices(last_stage(op, large_of_matrices)) < matrices(last_stage(op, lambda _recipe: 0))
