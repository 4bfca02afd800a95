"""Loads the target, and describes what can be called: the ops of a library, or ops that TensorFlow has itself."""

from __future__ import annotations

import fnmatch
import inspect
import json
import uuid
from typing import Any, Callable

from necropsy.fuzz.target.functions import RefusedError, last_line, namespace
from necropsy.fuzz.target.shapes import Shapes, Unknown

_RESOURCE = "DT_RESOURCE"
_SMALL = 1024
"""Bytes below which NumPy keeps the memory of freed arrays for new ones."""


def loaded(target: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the target offers, as JSON, and the names for its calls.

    Raises:
        RefusedError: it cannot be loaded, or has nothing that could be called.

    """
    try:
        import numpy as np
        import tensorflow as tf
        from tensorflow.core.framework import op_def_pb2
        from tensorflow.python.client import pywrap_tf_session
        from tensorflow.python.framework import op_def_registry
    except Exception as error:
        raise RefusedError("framework", last_line(error)) from error
    path = target.get("library")
    if path is not None:
        try:
            module = tf.load_op_library(path)
            listed = op_def_pb2.OpList()
            listed.ParseFromString(pywrap_tf_session.TF_GetOpList(pywrap_tf_session.TF_LoadLibrary(path)))
        except Exception as error:
            raise RefusedError("library", last_line(error)) from error
        names = [one.name for one in listed.op]
    else:
        module = tf.raw_ops
        names = fnmatch.filter(sorted(dir(tf.raw_ops)), target["pattern"])
    offered = [one for one in (_described(tf, module, name) for name in names) if one is not None]
    if not offered:
        raise RefusedError("op", "it registers no op" if path else "TensorFlow has no such op: %s" % target["pattern"])
    op_def_registry.get("")  # the first miss lists all ops, which each worker would do otherwise
    found = namespace(
        np=np, tf=tf, ops=module, uuid=uuid, shapes=Shapes(tf, module), unknown=Unknown, in_graph=_in_graph(tf)
    )
    own = [dict(one, function="ops.%s" % one["name"]) for one in offered if _makes_handle(one)]
    makers = [*own, *(_makers_of(tf) if any(_takes_handle(one) for one in offered) else [])]
    found["__refusals__"] = (tf.errors.OpError,)
    found["__use_one_thread__"] = lambda: _use_one_thread(tf)
    found["__warm__"] = lambda: _warm(np, tf)
    found["__separate__"] = lambda given: {name: _separate(tf, one) for name, one in given.items()}
    return {"ops": offered, "makers": makers, "version": tf.__version__}, found


def _described(tf: Any, module: Any, name: str) -> dict[str, Any] | None:
    """An op as JSON; None where it has no Python function."""
    from google.protobuf import json_format
    from tensorflow.python.framework import kernels, op_def_registry

    definition = op_def_registry.get(name)
    if definition is None or not hasattr(module, name):
        return None
    described = json_format.MessageToDict(definition)
    registered = kernels.get_registered_kernels_for_op(name).kernel
    described["kernels"] = [json_format.MessageToDict(one) for one in registered if one.device_type == "CPU"]
    described["removed"] = 0 < definition.deprecation.version <= tf.version.GRAPH_DEF_VERSION
    rename(described, getattr(module, name))
    plain: dict[str, Any] = json.loads(json.dumps(described))
    return plain


def _takes_handle(described: dict[str, Any]) -> bool:
    return any(one.get("type") == _RESOURCE for one in described.get("inputArg", []))


def _makes_handle(described: dict[str, Any]) -> bool:
    """Of nothing but attributes, and nothing else."""
    made = described.get("outputArg", [])
    is_handle = len(made) == 1 and made[0].get("type") == _RESOURCE and "numberAttr" not in made[0]
    return is_handle and not described.get("inputArg") and bool(described["kernels"])


def _makers_of(tf: Any) -> list[dict[str, Any]]:
    """TensorFlow's own ops that make a handle."""
    from tensorflow.python.framework import op_def_registry

    found = []
    for name in dir(tf.raw_ops):
        definition = op_def_registry.get(name)
        if definition is not None and not definition.input_arg and len(definition.output_arg) == 1:
            described = _described(tf, tf.raw_ops, name)
            if described is not None and _makes_handle(described):
                found.append(dict(described, function="tf.raw_ops.%s" % name))
    return found


def rename(described: dict[str, Any], function: Any) -> None:
    """Give the inputs and attributes of an op the names that its Python function has for them.

    They differ for some ops: TensorFlow's ``Mean`` takes ``axis`` for ``reduction_indices``, and a name that is a word
    of Python's gets an underscore.
    """
    try:
        parameters = [one for one in inspect.signature(function).parameters if one != "name"]
    except (TypeError, ValueError):
        return
    inputs, attributes = described.get("inputArg", []), described.get("attr", [])
    implied = {one.get(key) for one in inputs for key in ("typeAttr", "numberAttr", "typeListAttr")}
    given = [one for one in (*inputs, *attributes) if one["name"] not in implied]
    known = {one["name"] for one in given}
    other = [one for one in given if one["name"] not in parameters]
    free = [one for one in parameters if one not in known]
    if len(other) == len(free):
        for at, one in enumerate(other):
            one["name"] = free[at]


def _use_one_thread(tf: Any) -> None:
    """Before the runtime starts."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def _warm(np: Any, tf: Any) -> None:
    """Start the runtime before the first call is timed."""
    for dtype in (np.float32, np.int32, np.int64):
        tf.identity(tf.constant(np.ones((3,), dtype)))
    tf.constant(b"a")


def _in_graph(tf: Any) -> Callable[[Any], Any]:
    """What makes a function of an op that runs it in a graph, whose inputs the tensors are: nothing is folded away."""

    def wrapped(function: Any) -> Any:
        def by_name(**given: Any) -> Any:
            return function(**given)  # TensorFlow's own ops take nothing by position

        graph = tf.function(by_name, autograph=False)

        def call(**given: Any) -> Any:
            try:
                return graph(**given)
            except ValueError as error:  # the shape function refuses the inputs
                raise tf.errors.InvalidArgumentError(None, None, str(error)) from error

        return call

    return wrapped


def _separate(tf: Any, one: Any) -> Any:
    """The same input in memory of TensorFlow's own, which can be guarded.

    A tensor that is made of an array shares the array's memory if that happens to be aligned, and NumPy may have taken
    it before the guard was armed.
    """
    if isinstance(one, list):
        return [_separate(tf, each) for each in one]
    is_small = isinstance(one, tf.Tensor) and (one.dtype.is_bool or one.dtype.is_floating or one.dtype.is_integer)
    return tf.raw_ops.DeepCopy(x=one) if is_small and one.shape.num_elements() * one.dtype.size < _SMALL else one
