"""Loads the target, and describes what can be called: the ops of a library, or ops that TensorFlow has itself."""

from __future__ import annotations

import fnmatch
import json
from typing import Any

from necropsy.fuzz.target.loading import RefusedError, last_line, namespace


def loaded(target: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the target offers, as JSON, and the names for its calls.

    Raises:
        RefusedError: it cannot be loaded, or has nothing that could be called.

    """
    try:
        import numpy as np
        import tensorflow as tf
        from google.protobuf import json_format
        from tensorflow.core.framework import op_def_pb2
        from tensorflow.python.client import pywrap_tf_session
        from tensorflow.python.framework import kernels, op_def_registry
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
    offered: list[dict[str, Any]] = []
    for name in names:
        definition = op_def_registry.get(name)
        if definition is None or not hasattr(module, name):
            continue
        described = json_format.MessageToDict(definition)
        registered = kernels.get_registered_kernels_for_op(name).kernel
        described["kernels"] = [json_format.MessageToDict(one) for one in registered if one.device_type == "CPU"]
        offered.append(json.loads(json.dumps(described)))
    if not offered:
        raise RefusedError("op", "it registers no op" if path else "TensorFlow has no such op: %s" % target["pattern"])
    found = namespace(np=np, tf=tf, ops=module)
    found["__refusals__"] = (tf.errors.OpError,)
    found["__use_one_thread__"] = lambda: _use_one_thread(tf)
    found["__warm__"] = lambda: _warm(np, tf)
    return {"ops": offered, "version": tf.__version__}, found


def _use_one_thread(tf: Any) -> None:
    """Before the runtime starts."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def _warm(np: Any, tf: Any) -> None:
    """Start the runtime before the first call is timed."""
    for dtype in (np.float32, np.int32, np.int64):
        tf.identity(tf.constant(np.ones((3,), dtype)))
    tf.constant(b"a")
