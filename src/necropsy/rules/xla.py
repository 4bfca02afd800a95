"""XLA in a crash, and the experiment without it: TensorFlow and JAX then run their own kernels, one at a time.

Variables switch off TensorFlow's clustering (``TF_XLA_FLAGS``, tensorflow/compiler/jit/flags.cc) and JAX's compilation
(``JAX_DISABLE_JIT``, JAX's configuration page). TensorFlow functions with ``jit_compile=True`` are only reached from
inside, through their common class.
"""

from __future__ import annotations

from necropsy.model import Change, Crash, Fix, Proposal

_FUNCTIONS = "tensorflow.python.eager.polymorphic_function.polymorphic_function"
AT_START = f"""
import importlib.util, sys
class _Without:
    def find_spec(self, name, path=None, target=None):
        if name != {_FUNCTIONS!r}:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module
        def exec_module(module):
            execute(module)
            made = module.Function.__init__
            def without(self, *arguments, **options):
                made(self, *arguments, **options)
                self._jit_compile = False
            module.Function.__init__ = without
        spec.loader.exec_module = exec_module
        return spec
sys.meta_path.insert(0, _Without())
"""
_SAYS = ("xla/", "XLA")
_IN_NAMES = ("xla::", "xla_", "Xla")
_IN_MODULES = ("xla_extension", "libjax", "pjrt")


def without_xla() -> Proposal:
    """Nothing is compiled by XLA."""
    return Proposal(
        name="no-xla",
        change=Change(
            environment={"TF_XLA_FLAGS": "--tf_xla_auto_jit=-1", "JAX_DISABLE_JIT": "1"}, at_start=(AT_START,)
        ),
        text="nothing is compiled by XLA (TF_XLA_FLAGS=--tf_xla_auto_jit=-1, jit_compile=False, JAX_DISABLE_JIT=1)",
        predicts=("survives",),
        # That it lives says that XLA has a part in it, whatever it died of; that it dies, that the wrong is elsewhere.
        proves=False,
        refutes=False,
        fix=Fix(
            text="As a workaround, run it without XLA: no jit_compile=True, and these variables. It is slower.",
            command="export TF_XLA_FLAGS=--tf_xla_auto_jit=-1 JAX_DISABLE_JIT=1",
        ),
    )


def is_in(crash: Crash) -> bool:
    """XLA is on the stack of the thread that died, or in its last words."""
    thread = crash.crashed_thread
    frames = (thread.frames if thread is not None else None) or ()
    for frame in frames:
        if frame.function and any(word in frame.function for word in _IN_NAMES):
            return True
        if frame.module and any(word in frame.module for word in _IN_MODULES):
            return True
    return any(word in message.text for message in crash.messages or () for word in _SAYS)
