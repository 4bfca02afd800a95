"""What the front end gives of a source: its functions, classes, sizes, ops and kernels; and of bad input."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from necropsy.audit.cxx.calls import CallGraph
from necropsy.audit.cxx.declarators import locals_of
from necropsy.audit.cxx.frames import bindings
from necropsy.audit.cxx.load import LARGEST, Reader, _parser, load, of_text
from necropsy.audit.cxx.model import Unit
from necropsy.audit.cxx.sizes import Sizes
from necropsy.audit.cxx.types import parsed
from necropsy.errors import InputError, NoInputError

SOURCE = """\
#define BLOCK 1024
#define REG(T) REGISTER_KERNEL_BUILDER(Name("Foo").Device(DEVICE_CPU).TypeConstraint<T>("T"), FooOp<T, 3>);
namespace tensorflow {
namespace {
constexpr int kN = BLOCK * 4;
enum class Mode { A, B = 4, C };
template <typename T, int N> struct Buffer { T values[N * kN]; char x = 0; };
struct Node { std::unique_ptr<Node> next; virtual ~Node() = default; int a, *b; static int count; };
using Large = Buffer<float, Mode::C>;
int Depth(const Node* n, int d = 0) { return n ? Depth(n->next.get(), d + 1) : d; }
}
REGISTER_OP("Foo").Attr("T: {float, double} = DT_FLOAT").Attr("N: int >= 1 = 4").Input("x: T").Input("y: N * int32")
    .Output("z: Ref(T)").SetShapeFn([](InferenceContext* c) { return OkStatus(); });
template <typename T, int R>
class FooOp : public OpKernel {
 public:
  explicit FooOp(OpKernelConstruction* c) : OpKernel(c) { OP_REQUIRES_OK(c, c->GetAttr("N", &n_)); }
  void Compute(OpKernelContext* ctx) override;
 private:
  int n_ TF_GUARDED_BY(mu_);
};
template <typename T, int R>
void FooOp<T, R>::Compute(OpKernelContext* ctx) {
  Large large; constexpr int kM = 5; T some[kM][BLOCK], *p = nullptr;
  std::function<int(int)> again = [&again, this](int n) { return n < 1 ? 0 : again(n - 1); };
  for (int64_t i = 0; i < R; ++i) { const auto& e = large.values[i]; Depth(nullptr); }
}
REG(float)
REG(double)
}
"""


def unit(text: str, path: str = "op.cc") -> Unit:
    return of_text(path, text.encode(), Reader())


@pytest.fixture(scope="module")
def foo() -> Unit:
    return unit(SOURCE)


def test_functions_and_lambdas(foo: Unit) -> None:
    assert not foo.troubles
    (depth,) = foo.named("Depth")
    assert depth.qualified == "tensorflow::Depth"
    assert [(one.name, str(one.type), one.default) for one in depth.parameters] == [
        ("n", "const Node*", None),
        ("d", "int", "0"),
    ]
    assert (depth.least, depth.most) == (1, 2)
    (compute,) = foo.named("Compute")
    assert compute.class_name == "tensorflow::FooOp"
    assert [one.name for one in compute.template] == ["T", "R"]
    assert (compute.place.line, compute.place.macro) == (23, None)
    (again,) = foo.lambdas(compute)
    assert (again.name, again.is_lambda, again.captures) == ("again", True, "&again, this")
    assert [one.name for one in locals_of(compute)] == ["large", "kM", "some", "p", "again", "i", "e"]


def test_ops_and_kernels(foo: Unit) -> None:
    (op,) = foo.ops
    assert [(one.name, one.type, one.number, one.is_ref) for one in (*op.inputs, *op.outputs)] == [
        ("x", "T", None, False),
        ("y", "int32", "N", False),
        ("z", "T", None, True),
    ]
    number, kind = op.attribute("N"), op.attribute("T")
    assert number is not None and (number.type, number.minimum, number.default) == ("int", 1, "4")
    assert kind is not None and kind.allowed == ("float", "double")
    assert op.shape_function is not None and op.shape_function.startswith("[](")
    first, second = foo.kernels
    assert (first.op, first.device, first.arguments) == (op, "CPU", ("float", "3"))
    assert second.constraints == (("T", "double"),)
    assert first.compute is foo.named("Compute")[0]
    assert first.constructor is not None and first.constructor.is_constructor
    assert (first.place.line, first.place.macro) == (28, "REG")


def test_sizes(foo: Unit) -> None:
    (compute,) = foo.named("Compute")
    sizes = {
        one.name: max(Sizes(foo, each, compute.qualified).bytes(one.type) or 0 for each in bindings(foo, compute))
        for one in locals_of(compute)
    }
    assert sizes["large"] == 5 * 4096 * 4 + 4
    assert sizes["some"] == 5 * 1024 * 8, "FooOp<double, 3>"
    plain = Sizes(foo, scope="tensorflow")
    for text, size in {
        "std::array<Buffer<double, 1>, 2>": 2 * (4096 * 8 + 8),
        "Eigen::Matrix<float, 4, 4>": 64,
        "Eigen::Matrix3d": 72,
        "Eigen::TensorFixedSize<float, Eigen::Sizes<100, 100>>": 40_000,
        "unsigned long long[kN]": 32_768,
        "std::vector<float>&": 8,
        "Unknown[3]": None,
        "float[n]": None,
    }.items():
        assert plain.bytes(parsed(text)) == size, text
    assert plain.value("Mode::C + kN") == 4101


def test_classes(foo: Unit) -> None:
    node = foo.class_named("Node")
    assert node is not None and not node.own_destructor
    assert [(one.name, str(one.type), one.is_static) for one in node.fields] == [
        ("next", "std::unique_ptr<Node>", False),
        ("a", "int", False),
        ("b", "int*", False),
        ("count", "int", True),
    ]
    op = foo.class_named("FooOp")
    assert op is not None and [one.name for one in op.fields] == ["n_"] and str(op.bases[0]) == "OpKernel"


def test_calls_have_their_kernel(foo: Unit) -> None:
    graph = CallGraph(foo)
    assert sorted(group[0].name for group in graph.cycles) == ["Depth", "again"]
    kernel = graph.kernel_of(foo.named("Depth")[0])
    assert kernel is not None and kernel.op_name == "Foo"


def test_places_are_those_of_the_file() -> None:
    one = unit("#define ADD(x) wrap(x, 1)\nint f() {\n  /* é */ return ADD(value) + after();\n}\n")
    file = one.source
    start = file.text.index(b"value")
    place = file.place_of(start, start + 5)
    assert (place.line, place.column, place.macro) == (3, 22, "ADD")
    assert file.original[place.start : place.end] == b"value"
    start = file.text.index(b"after")
    place = file.place_of(start, start + 5)
    assert file.original[place.start : place.end] == b"after" and place.macro is None


def test_headers_beside_the_file_and_below_the_roots(tmp_path: Path) -> None:
    (tmp_path / "ops" / "deep").mkdir(parents=True)
    (tmp_path / "ops" / "near.h").write_text("inline int Near(int n) { return n; }\n")
    (tmp_path / "wide.h").write_text("inline int Wide(int n) { return n; }\n")
    source = tmp_path / "ops" / "deep" / "op.cc"
    source.write_text('#include "../near.h"\n#include "wide.h"\n#include "gone.h"\n')
    reader = Reader((str(tmp_path),))
    read = load(str(source), reader)
    assert [Path(one.path).relative_to(tmp_path).as_posix() for one in read.files] == [
        "ops/near.h",
        "wide.h",
        "ops/deep/op.cc",
    ]
    assert {one.name for one in read.functions} == {"Near", "Wide"}
    assert [one.part for one in read.troubles] == ['header "gone.h"']
    assert sum(1 for digest in reader.hashes.values() if digest) == 2


def test_what_is_not_understood_costs_only_itself() -> None:
    read = unit("int Before() { return 1; }\nclass } ( {{ ;\nint After(int n) { return n; }\n")
    assert "Before" in {one.name for one in read.functions}
    assert "syntax not understood at line" in read.troubles[0].why


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "binary.cc").write_bytes(b"\x7fELF\0\0\0\0")
    with pytest.raises(InputError, match="holds binary data"):
        load(str(tmp_path / "binary.cc"))
    with pytest.raises(NoInputError, match="cannot read"):
        load(str(tmp_path / "gone.cc"))
    assert not load(str(tmp_path / "empty.cc") if (tmp_path / "empty.cc").write_text("") == 0 else "").functions


def test_generated_code_is_read_up_to_a_limit() -> None:
    line = b"// generated " + b"x" * 4000 + b"\n"
    read = of_text("generated.cc", b"int F() { return 1; }\n" + line * (LARGEST // len(line) + 10), Reader())
    assert [one.name for one in read.functions] == ["F"]
    assert "only its first" in read.troubles[0].why


def test_without_the_parser_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    _parser.cache_clear()
    monkeypatch.setitem(sys.modules, "tree_sitter_cpp", None)
    with pytest.raises(
        InputError, match=r"need the package tree_sitter_cpp.* -m pip install tree-sitter tree-sitter-cpp"
    ):
        of_text("op.cc", b"int twice(int n) { return 2 * n; }", Reader())
