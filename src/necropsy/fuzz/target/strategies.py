"""Draws calls from the Hypothesis strategies that a function, or the test of the same module for it, has by ``@given``.

The test of ``decode`` is ``test_decode``; its strategies count by the names of their arguments. Nothing is called.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from necropsy.fuzz.target.argument_data import data_of

MOST_DRAWN = 100


def without_given(function: Any) -> Tuple[Any, Dict[str, Any]]:
    """The function that ``@given`` calls, and its strategies by the names of its arguments; none without ``@given``."""
    handle = getattr(function, "hypothesis", None)
    inner, strategies = getattr(handle, "inner_test", None), getattr(handle, "_given_kwargs", None)
    if not callable(inner) or not isinstance(strategies, dict):
        return function, {}
    return inner, dict(strategies)


def drawn(strategies: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Different calls, the same ones each time, with their arguments as ``argument_data`` has them."""
    import hypothesis
    from hypothesis import strategies as st

    found: List[Dict[str, Any]] = []

    def collect(values: Dict[str, Any]) -> None:
        found.append({name: data_of(value) for name, value in values.items()})

    settings = hypothesis.settings(
        database=None,
        max_examples=MOST_DRAWN,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
    )
    hypothesis.seed(0)(settings(hypothesis.given(st.fixed_dictionaries(strategies))(collect)))()
    return [{"arguments": one} for one in found]


def kind_of(values: List[Any]) -> Any:
    """The kind of a parameter, from the data of the values that were drawn for it; None where it has none."""
    kinds = {_kind(one) for one in values if one != {"list": []}}
    return kinds.pop() if len(kinds) == 1 else "float" if kinds == {"int", "float"} else None


def _kind(data: Any) -> Any:
    if data is None:
        return None
    if "tensor" in data:
        return "ndarray"
    if "bytes" in data:
        return "bytes"
    if "list" in data:
        inner = {_kind(one) for one in data["list"]}
        return "list(int)" if inner == {"int"} else "list(float)" if inner <= {"int", "float"} else None
    value = data.get("plain")
    return {bool: "bool", int: "int", float: "float", str: "string"}.get(type(value))
