"""Calls an op in a graph, with inputs of which the type and perhaps the rank is known: this runs its shape function."""

from __future__ import annotations

from typing import Any, Optional


class Unknown:
    """An input without elements: of a type, and of a rank if that is not None."""

    def __init__(self, dtype: str, rank: Optional[int]) -> None:
        self.dtype, self.rank = dtype, rank


class Shapes:
    """Has a function for each op of ``module``, with the op's parameters.

    The function raises ``tf.errors.InvalidArgumentError`` where the shape function refuses the inputs.
    """

    def __init__(self, tf: Any, module: Any) -> None:
        self._tf, self._module = tf, module
        self._graph: Any = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        function = getattr(self._module, name)

        def call(**given: Any) -> None:
            tf = self._tf
            self._graph = self._graph or tf.Graph()
            with self._graph.as_default():
                made = {key: self._placed(one) for key, one in given.items()}
                try:
                    function(**made)
                except ValueError as error:
                    raise tf.errors.InvalidArgumentError(None, None, str(error)) from error

        return call

    def _placed(self, one: Any) -> Any:
        if isinstance(one, list):
            return [self._placed(each) for each in one]
        if not isinstance(one, Unknown):
            return one
        shape = None if one.rank is None else [None] * one.rank
        return self._tf.compat.v1.placeholder(getattr(self._tf, one.dtype), shape)
