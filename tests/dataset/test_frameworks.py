"""Real pipelines of TensorFlow, Keras and PyTorch, where they are installed."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import numpy as np
import pytest

import necropsy
from necropsy.dataset.sources import source_of
from necropsy.errors import InputError
from walked import findings, seen

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
TENSORFLOW = importlib.util.find_spec("tensorflow") is not None
TORCH = importlib.util.find_spec("torch") is not None
tensorflow = pytest.mark.skipif(not TENSORFLOW, reason="TensorFlow is not installed")
pytestmark = [pytest.mark.tensorflow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def tf() -> Any:
    return importlib.import_module("tensorflow")


def rules(made: Any, **request: Any) -> list[str]:
    return [one.rule for one in findings(made, **request) if one.severity != "note"]


@tensorflow
def test_small_elements_are_fetched_in_batches_and_counted_one_by_one(tf: Any) -> None:
    x = np.arange(5000, dtype=np.float32).reshape(-1, 1)
    x[[1234, 4321]] = np.nan
    dataset = seen(tf.data.Dataset.from_tensor_slices({"x": x, "y": np.arange(5000) % 10}), ranges={"['y']": (0, 8)})
    first, second = dataset.columns
    assert (dataset.elements, dataset.declared, dataset.spec, dataset.ended) == (5000, 5000, "declared", "end")
    assert [(one.kind, one.elements, one.index, one.position) for one in first.faults] == [("nan", 2, 1234, (0,))]
    assert [(one.kind, one.elements, one.index, one.value) for one in second.faults] == [("range", 500, 9, "9")]


@tensorflow
def test_the_limit_and_half_floats(tf: Any) -> None:
    slices = tf.data.Dataset.from_tensor_slices(np.array([1, 2, np.inf, 4] * 100, np.float16))
    assert (seen(slices, limit=7).ended, seen(slices, limit=7).elements) == ("limit", 7)
    (found,) = findings(slices.map(lambda x: tf.cast(x, tf.bfloat16)))
    assert (found.rule, found.evidence[1].seen) == ("data-inf", "100 of 400 elements")


@tensorflow
def test_an_exception_within_a_batch_has_its_exact_element(tf: Any) -> None:
    def read(number: Any) -> Any:
        if int(number) in {777, 778}:
            raise OSError("truncated file")
        return number

    def checked(number: Any) -> Any:
        return tf.ensure_shape(tf.py_function(read, [number], tf.int64), ())

    dataset = seen(tf.data.Dataset.range(2000).map(checked))
    assert dataset.raised is not None and dataset.raised.place is not None
    assert (dataset.raised.index, dataset.raised.times, dataset.elements) == (777, 2, 2000)
    assert dataset.raised.place.function == "read"


@tensorflow
def test_one_by_one_the_pipeline_does_not_run_ahead(tf: Any) -> None:
    made: list[int] = []

    def read(number: Any) -> Any:
        made.append(int(number))
        return number

    source = source_of(tf.data.Dataset.range(2000).map(lambda number: tf.py_function(read, [number], tf.int64)))
    source.one_by_one()
    elements = source.start(None)
    for _ in range(50):
        next(elements)
    # A crash in `read` would have been put down to the element that was asked for.
    assert made == list(range(50))


@tensorflow
def test_elements_that_cannot_be_batched(tf: Any) -> None:
    lengths = tf.data.Dataset.from_generator(
        lambda: (np.ones(3 if place < 9 else 4, np.float32) for place in range(12)),
        output_signature=tf.TensorSpec((None,), tf.float32),
    )
    assert rules(lengths) == []
    assert rules(lengths.batch(4)) == ["data-inconsistent"]


@tensorflow
def test_unknown_shapes_are_inferred(tf: Any) -> None:
    def draw(number: Any) -> Any:
        return tf.py_function(lambda place: np.ones((4, 4 - (int(place) == 90))), [number], tf.float64)

    (found, _) = findings(tf.data.Dataset.range(100).map(draw))
    assert (found.rule, found.evidence[0].seen) == ("data-shape", "(4, 3); expected: (4, 4)")


@tensorflow
def test_ragged_and_sparse_tensors(tf: Any) -> None:
    whole = tf.ragged.constant([[1, 2], [3], [4, 5, 6]])
    assert rules(tf.data.Dataset.from_tensor_slices(whole)) == []
    broken = tf.RaggedTensor.from_row_splits([1, 2, 3, 4], np.array([0, 3, 2, 4]), validate=False)
    (found,) = findings([whole, broken])
    assert (found.rule, found.evidence[0].claim) == ("data-ragged", "the first one is element 1")
    sparse = tf.sparse.SparseTensor([[0, 1], [3, 0]], [1.0, 2.0], [3, 4])
    (found,) = findings([sparse])
    assert (found.rule, found.evidence[0].seen) == (
        "data-index-out-of-range",
        "3 at position (1, 0); expected: 0 to 2 on axis 0",
    )


@tensorflow
def test_a_given_spec(tf: Any) -> None:
    spec = (tf.TensorSpec((None, 3), tf.float32), tf.TensorSpec((), tf.int32))
    elements = [(np.ones((2, 3), np.float32), 1), (np.ones((5, 3), np.float64), 1), (np.ones((2, 4), np.float32), 0.5)]
    document = necropsy.check_dataset(elements, spec)
    assert {(one.rule, one.confidence, one.evidence[0].where) for one in document.findings} == {
        ("data-dtype", "certain", "[0]"),
        ("data-shape", "certain", "[0]"),
        ("data-dtype", "certain", "[1]"),
    }
    assert document.dataset is not None and document.dataset.spec == "given"


@tensorflow
def test_endless_datasets_need_a_limit(tf: Any) -> None:
    endless = tf.data.Dataset.range(3).repeat()
    with pytest.raises(InputError, match="limit"):
        necropsy.check_dataset(endless)
    assert not necropsy.check_dataset(endless, limit=10).findings


@tensorflow
def test_a_keras_sequence(tf: Any) -> None:
    class Batches:
        def __len__(self) -> int:
            return 5

        def __getitem__(self, place: int) -> Any:
            if place == 2:
                raise KeyError("cat.jpg")
            rows = 8 if place < 4 else 3
            return np.ones((rows, 2)), np.arange(rows - (place == 3))

    # TensorFlow has no types, so mypy knows of no class to inherit from.
    sequence: Any = type("Sequence", (Batches, tf.keras.utils.Sequence), {})
    found = [one for one in findings(sequence()) if one.severity != "note"]
    assert [(one.rule, one.evidence[0].claim) for one in found] == [
        ("data-error", "KeyError while batch 2 was fetched"),
        ("data-inconsistent", "the first one is batch 3"),
    ]


@pytest.mark.skipif(not TORCH, reason="PyTorch is not installed")
def test_a_data_loader() -> None:
    torch = importlib.import_module("torch")
    values = torch.arange(100.0)
    values[40] = float("nan")
    made = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(values, torch.arange(100)), batch_size=8)
    dataset = seen(made)
    assert (dataset.batches, dataset.elements, dataset.declared) == (True, 13, 13)
    assert rules(made) == ["data-nan"]
