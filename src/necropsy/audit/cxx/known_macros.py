"""Macros that are known without the headers that define them: of the compiler, TensorFlow, Eigen and Abseil."""

from __future__ import annotations

UNDEFINED = frozenset(
    {"GOOGLE_CUDA", "TENSORFLOW_USE_ROCM", "TENSORFLOW_USE_SYCL", "TENSORFLOW_USE_NVCC", "INTEL_MKL", "ENABLE_MKL"}
    | {"ENABLE_ONEDNN_V3", "AMD_ZENDNN", "DNNL_AARCH64_USE_ACL", "TENSORFLOW_USE_MKLDNN_CONTRACTION_KERNEL"}
    | {"_WIN32", "_WIN64", "WIN32", "_MSC_VER", "__MINGW32__", "__CYGWIN__", "PLATFORM_WINDOWS", "COMPILER_MSVC"}
    | {"__APPLE__", "__ANDROID__", "ANDROID", "IS_MOBILE_PLATFORM", "TARGET_OS_IOS", "TARGET_OS_MAC", "__FreeBSD__"}
    | {"IS_SLIM_BUILD", "__ANDROID_TYPES_SLIM__", "__ANDROID_TYPES_FULL__", "TENSORFLOW_LITE_PROTOS", "LIBTPU_ON_GCE"}
    | {"__CUDACC__", "__CUDA_ARCH__", "__NVCC__", "__HIPCC__", "__HIP_DEVICE_COMPILE__", "EIGEN_GPUCC", "EIGEN_USE_GPU"}
    | {"EIGEN_USE_SYCL", "__SYCL_DEVICE_ONLY__", "USE_CUDA", "WITH_CUDA", "HAVE_CUDA", "USE_ROCM", "USE_HIP", "NDEBUG"}
    | {"__aarch64__", "__arm__", "__ARM_NEON", "__ARM_NEON__", "__powerpc64__", "__s390x__", "__BIG_ENDIAN__"}
)
"""Taken as undefined: what is built is the CPU kernel, for Linux on x86-64."""

DEFINED = {
    "__cplusplus": "201703",
    "__linux__": "1",
    "__linux": "1",
    "__unix__": "1",
    "__x86_64__": "1",
    "__LP64__": "1",
    "__GNUC__": "12",
    "__GNUC_MINOR__": "2",
    "TF_MAJOR_VERSION": "2",
    "TF_MINOR_VERSION": "15",
    "TF_PATCH_VERSION": "0",
}

KEPT = frozenset(
    {"OP_REQUIRES", "OP_REQUIRES_OK", "OP_REQUIRES_ASYNC", "OP_REQUIRES_OK_ASYNC", "OP_REQUIRES_VALUE"}
    | {"OP_REQUIRES_OK_OR_SET_PAYLOAD", "TF_RETURN_IF_ERROR", "TF_RETURN_WITH_CONTEXT_IF_ERROR", "TF_ASSIGN_OR_RETURN"}
    | {"TF_CHECK_OK", "TF_QCHECK_OK", "TF_DCHECK_OK", "TF_EXPECT_OK", "LOG", "VLOG", "DLOG", "LOG_IF", "assert"}
    | {"RETURN_IF_ERROR", "ASSIGN_OR_RETURN", "REGISTER_OP", "REGISTER_KERNEL_BUILDER", "REGISTER_SYSTEM_OP"}
    | {"REGISTER_SYSTEM_KERNEL_BUILDER", "REGISTER_SHAPE_FN", "static_assert"}
    | {
        f"{d}CHECK{how}"
        for d in ("", "D", "Q")
        for how in ("", *(f"_{one}" for one in (["EQ", "NE", "LT", "LE", "GT", "GE", "NOTNULL", "OK"])))
    }
)
"""Never expanded, even where the project defines them: the analysis knows what they mean."""

_NUMBERS = "float double int32 int64_t uint8 int8 int16 uint16 Eigen::half bfloat16"
_ALL = f"{_NUMBERS} bool tstring complex64 complex128"
_GROUPS = {
    "TF_CALL_ALL_TYPES": _ALL,
    "TF_CALL_POD_TYPES": f"{_NUMBERS} bool",
    "TF_CALL_POD_STRING_TYPES": f"{_NUMBERS} bool tstring",
    "TF_CALL_NUMBER_TYPES": _NUMBERS,
    "TF_CALL_REAL_NUMBER_TYPES": _NUMBERS,
    "TF_CALL_REAL_NUMBER_TYPES_NO_INT32": "float double int64_t",
    "TF_CALL_FLOAT_TYPES": "float double Eigen::half bfloat16",
    "TF_CALL_INTEGRAL_TYPES": "int32 int64_t uint8 int8 int16 uint16",
    "TF_CALL_INDEX_TYPES": "int32 int64_t",
    "TF_CALL_COMPLEX_TYPES": "complex64 complex128",
    "TF_CALL_QUANTIZED_TYPES": "qint8 quint8 qint32",
    "TF_CALL_float": "float",
    "TF_CALL_double": "double",
    "TF_CALL_int32": "int32",
    "TF_CALL_int64": "int64_t",
    "TF_CALL_int16": "int16",
    "TF_CALL_uint16": "uint16",
    "TF_CALL_int8": "int8",
    "TF_CALL_uint8": "uint8",
    "TF_CALL_bool": "bool",
    "TF_CALL_half": "Eigen::half",
    "TF_CALL_bfloat16": "bfloat16",
    "TF_CALL_tstring": "tstring",
    "TF_CALL_string": "tstring",
    "TF_CALL_complex64": "complex64",
    "TF_CALL_complex128": "complex128",
}
_NOTHING = (
    "EIGEN_STRONG_INLINE EIGEN_ALWAYS_INLINE EIGEN_DEVICE_FUNC EIGEN_DONT_INLINE EIGEN_MAKE_ALIGNED_OPERATOR_NEW "
    "TF_EXPORT PLATFORM_EXPORT TF_MUST_USE_RESULT TF_ATTRIBUTE_NOINLINE TF_ATTRIBUTE_ALWAYS_INLINE TF_ATTRIBUTE_UNUSED "
    "TF_ATTRIBUTE_COLD TF_CONST_INIT TF_CAPI_EXPORT TF_NO_THREAD_SAFETY_ANALYSIS ABSL_ATTRIBUTE_NOINLINE "
    "ABSL_ATTRIBUTE_ALWAYS_INLINE ABSL_MUST_USE_RESULT ABSL_ATTRIBUTE_UNUSED ABSL_NO_THREAD_SAFETY_ANALYSIS "
    "__restrict__ __restrict __host__ __device__ __forceinline __inline__ GPU_DEVICE_FUNC TF_FALLTHROUGH_INTENDED"
)
_NOTHING_OF = (
    "GUARDED_BY TF_GUARDED_BY ABSL_GUARDED_BY TF_PT_GUARDED_BY TF_EXCLUSIVE_LOCKS_REQUIRED TF_SHARED_LOCKS_REQUIRED "
    "TF_LOCKS_EXCLUDED TF_ACQUIRED_BEFORE TF_ACQUIRED_AFTER ABSL_EXCLUSIVE_LOCKS_REQUIRED ABSL_LOCKS_EXCLUDED "
    "EXCLUSIVE_LOCKS_REQUIRED LOCKS_EXCLUDED TF_DISALLOW_COPY_AND_ASSIGN TF_PRINTF_ATTRIBUTE TF_SCANF_ATTRIBUTE "
    "ABSL_DEPRECATED __attribute__ __declspec"
)
_SELF = "TF_PREDICT_TRUE TF_PREDICT_FALSE ABSL_PREDICT_TRUE ABSL_PREDICT_FALSE"

FUNCTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    **{name: (("m",), " ".join(f"m({one})" for one in types.split())) for name, types in _GROUPS.items()},
    **dict.fromkeys(_NOTHING_OF.split(), (("...",), "")),
    **dict.fromkeys(_SELF.split(), (("x",), "(x)")),
}
"""Function-like macros: parameters and body."""
_FORMATS = {
    f"PRI{what}{width}": f'"{"l" if width in {"64", "MAX", "PTR"} else ""}{what}"'
    for what in "diouxX"
    for width in ("32", "64", "MAX", "PTR")
}
OBJECTS: dict[str, str] = {**DEFINED, **dict.fromkeys(_NOTHING.split(), ""), **_FORMATS}
