"""Compares the gradient that is registered for a call with finite differences, at points where the call is smooth."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

LARGEST = 64
"""Elements of an input."""
POINTS = (0, 1)
"""Seeds of the points: the gradient is wrong at each of them."""
DIRECTION = 100
"""Added to the seed of a point for the direction in which the derivative is taken."""
LOW, HIGH = 0.25, 0.75
"""Most functions are defined and smooth between these numbers."""
STEPS = {"float32": 1e-2, "float64": 1e-4}
WRONG = 0.1
"""The share by which a gradient may differ from the difference; float32 and the step cost less than a hundredth."""
_SMOOTH = 0.02
_NOISE = {"float32": 1e-3, "float64": 1e-9}
_LEAST = 1e-3
"""A difference is seen that is more than this share of the value, or of a small one."""


def wrong_gradient(tf: Any, np: Any, function: Any, given: Dict[str, Any]) -> List[str]:
    """The input whose gradient is wrong, the derivative by the gradient, and by differences; empty where none is."""
    try:
        points = [_Point(tf, np, function, given, seed) for seed in POINTS]
        for name in points[0].inputs:
            found = [one.slopes(name) for one in points]
            if all(one is not None and _differ(*one) for one in found) and found[0] is not None:
                return [name, "%.6g" % found[0][0], "%.6g" % found[0][1]]
    except Exception:  # noqa: BLE001 - no gradient is registered, or the call refuses the point
        return []
    return []


def _differ(gradient: float, difference: float) -> bool:
    return abs(gradient - difference) > WRONG * max(abs(gradient), abs(difference))


class _Point:
    """The call with other elements in its small inputs of floating-point numbers."""

    def __init__(self, tf: Any, np: Any, function: Any, given: Dict[str, Any], seed: int) -> None:
        self._tf, self._np, self._seed = tf, np, seed
        self._function, self._values = function, dict(given)
        random = np.random.RandomState(seed)
        self.inputs = [name for name, one in given.items() if self._is_small(one)]
        for name in self.inputs:
            one = given[name]
            self._values[name] = tf.constant(random.uniform(LOW, HIGH, one.shape), one.dtype)

    def _is_small(self, one: Any) -> bool:
        return self._tf.is_tensor(one) and one.dtype.name in STEPS and 0 < int(self._tf.size(one)) <= LARGEST

    def slopes(self, name: str) -> Optional[Tuple[float, float]]:
        """The derivative in a direction, by the gradient and by differences; None where they say nothing."""
        tf, start = self._tf, self._values[name]
        random = self._np.random.RandomState(self._seed + DIRECTION)
        direction = tf.constant(random.uniform(-1, 1, start.shape), start.dtype)
        step = STEPS[start.dtype.name]

        def slope(back: float, forth: float) -> float:
            ends = [float(self._total(name, start + by * step * direction)) for by in (-back, forth)]
            return (ends[1] - ends[0]) / ((back + forth) * step)

        with tf.GradientTape() as tape:
            tape.watch(start)
            value = self._total(name, start)
        found = tape.gradient(value, start)
        if found is None or float(self._total(name, start)) != float(value):
            return None
        gradient = float(tf.reduce_sum(tf.convert_to_tensor(found) * direction))
        slopes = [slope(1, 1), slope(0.5, 0.5), slope(1, 0), slope(0, 1)]
        largest = max(map(abs, slopes))
        # Where noise, a corner or a stair is seen, a difference says nothing. A gradient of 0 may be meant.
        is_seen = largest * step > _NOISE[start.dtype.name] * max(abs(float(value)), _LEAST)
        is_smooth = max(slopes) - min(slopes) <= _SMOOTH * largest
        return (gradient, slopes[1]) if gradient and is_seen and is_smooth else None

    def _total(self, name: str, at: Any) -> Any:
        """The sum of all results of the input's type, each element times a weight."""
        tf = self._tf
        results = tf.nest.flatten(self._function(**dict(self._values, **{name: at})))
        return tf.add_n([self._weighted(one) for one in results if one.dtype == at.dtype])

    def _weighted(self, one: Any) -> Any:
        tf = self._tf
        weights = tf.reshape(tf.cos(tf.cast(tf.range(tf.size(one)), tf.float64)), one.shape)
        return tf.reduce_sum(tf.cast(one, tf.float64) * weights)
