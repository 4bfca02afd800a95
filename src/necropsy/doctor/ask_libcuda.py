"""Asks NVIDIA's driver about its GPUs. It runs in a process of its own: the driver's library may hang or crash."""

import ctypes
import json
import sys

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
_NAME_BYTES = 256


def main(path: str) -> None:
    """Print one line of JSON: what cuInit returned, the newest CUDA, and name and capability of each GPU."""
    cuda = ctypes.CDLL(path)
    version, count, number = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    known = cuda.cuDriverGetVersion(ctypes.byref(version)) == 0
    answer = cuda.cuInit(0)
    gpus = []
    if answer == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0:
        for place in range(count.value):
            if cuda.cuDeviceGet(ctypes.byref(number), place) != 0:
                continue
            device, name = number.value, ctypes.create_string_buffer(_NAME_BYTES)
            cuda.cuDeviceGetName(name, _NAME_BYTES, device)
            capability = []
            for attribute in (_MAJOR, _MINOR):
                cuda.cuDeviceGetAttribute(ctypes.byref(number), attribute, device)
                capability.append(number.value)
            gpus.append([name.value.decode("utf-8", "replace"), *capability])
    sys.stdout.write(json.dumps({"answer": answer, "version": version.value if known else None, "gpus": gpus}) + "\n")


main(sys.argv[1])
