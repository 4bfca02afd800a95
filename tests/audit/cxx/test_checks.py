"""The checks on C++ sources that need no values: what they find, and what they know to be harmless."""

from __future__ import annotations

import pytest

from necropsy.audit.cxx import checks, frames
from necropsy.audit.cxx.load import Reader, of_text
from necropsy.audit.cxx.looking import Look
from necropsy.audit.cxx.model import Function
from necropsy.model import CodeDefect

STACK = 8 << 20


def found(text: str, stack: int = STACK) -> list[CodeDefect]:
    defects, gaps = checks.of_unit(of_text("op.cc", text.encode(), Reader()), stack)
    assert not gaps
    return list(defects)


def rules(text: str) -> list[str]:
    return [one.rule for one in found(text)]


TREE = """
struct Tree {
  std::vector<std::unique_ptr<Tree>> c;
  int Sum() { int s = 0; for (auto i = 0; i < 2; ++i) s += c[i]->Sum(); return s; }
  ~Tree();
};
Tree::~Tree() { while (!c.empty()) { auto t = std::move(c.back()); } }
"""


@pytest.mark.parametrize(
    "text",
    [
        "int F(int n) { return n ? F(n - 1) : 0; }",
        "int F(const Node* n) { if (!n) return 0; return F(n->left) + F(n->right); }",
        "int G(int); int F(int n) { return n ? G(n - 1) : 0; } int G(int n) { return F(n); }",
        "void F() { std::function<int(int)> f = [&](int n) { return n ? f(n - 1) : 0; }; f(N()); }",
        "void F() { std::function<int(int)> f; f = [&f](int n) { return n ? f(n - 1) : 0; }; }",
        "void F() { auto f = [](auto&& self, int n) -> int { return n ? self(self, n - 1) : 0; }; f(f, N()); }",
        "struct Node { Node* left; int Sum() { return left ? left->Sum() : 0; } };",
        TREE,
        "void V(const N& n) { std::for_each(n.b(), n.e(), [&](const N& c) { V(c); }); }",
        "#define LEVELS 1000000\nint F(int n) { return n ? F(n - 1) : 0; }\nint main() { return F(LEVELS); }",
    ],
)
def test_recursion(text: str) -> None:
    assert rules(text) == ["op-recursion"]


@pytest.mark.parametrize(
    "text",
    [
        "int F(int a, int b) { return a + b; } int F(int a) { return F(a, 1); }",
        "int F(int lo, int hi) { if (lo >= hi) return lo; int mid = (lo + hi) / 2; return F(lo, mid); }",
        "int F(int n, int depth) { if (depth > 100) return 0; return F(n * 2, depth + 1); }",
        "constexpr int kDeepest = 64;\nint F(int n, int d) { OP_REQUIRES(c, d < kDeepest, E()); return F(n * 2, d + 1); }",
        "int F(int n) { return n ? F(n - 1) : 0; } int main() { return F(100); }",
        "int F(int n) { return n ? F(n - 1) : 0; } void C(X* c) { OP_REQUIRES(c, c->n() <= 1000, E()); F(c->n()); }",
        "struct A { int max(int n) { return std::max(n, 1); } };",
        "struct B { int F(int n) { return 1; } }; struct A { B b; int F(int n) { return b.F(n); } };",
        "struct Op { void Start(Ctx* c) { pool->Schedule([this, c]() { Start(c); }); } };",
        "template <typename T, typename... R> void F(T t, R... r) { F(r...); }",
        "void F(float* x) { x[0] = 1; } void F(int* x) { float y; F(&y); }",
        "// necropsy: ignore[op-recursion] the depth is tested\nint F(int n) { return n ? F(n - 1) : 0; }",
    ],
)
def test_what_is_no_recursion_or_stays_shallow(text: str) -> None:
    assert rules(text) == []


def test_what_is_said_of_a_recursion() -> None:
    (one,) = found("int F(int n) { volatile char block[1000]; return n ? F(n - 1) : block[0]; }")
    assert (one.case, one.severity, one.function) == ("data", "warning", "F")
    assert 1000 < one.numbers["bytes"] < 1100
    assert one.numbers["levels"] == STACK // one.numbers["bytes"]
    assert one.names["depends"] == "n - 1"
    assert (one.place.line, one.place.role, one.others[0].role) == (1, "function", "call")
    (endless,) = found("int F(int n) { return F(n + n); }")
    assert (endless.case, endless.severity) == ("endless", "error")
    (fixed,) = found("int F(int n) { return n ? F(n - 1) : 0; }\nint main() { return F(1000000); }")
    assert (fixed.case, fixed.numbers["deepest"]) == ("fixed", 1_000_001)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("struct N { std::unique_ptr<N> next; };", 1),
        ("struct N { std::vector<std::shared_ptr<N>> children; };", 1),
        ("struct N { std::vector<N> children; };", 1),
        ("struct B; struct A { std::unique_ptr<B> b; }; struct B { std::unique_ptr<A> a; };", 1),
        ("struct N { N* next; ~N() { delete next; } };", 1),
        ("struct N { std::vector<N*> c; ~N() { for (N* one : c) delete one; } };", 1),
        ("template <typename T> struct N { std::unique_ptr<N<T>> next; T value; };", 1),
        ("struct N { N* next; std::weak_ptr<N> up; std::vector<N*> seen; };", 0),
        ("struct N { std::unique_ptr<N> next; ~N() { while (next) { next = std::move(next->next); } } };", 0),
        ("struct N { std::unique_ptr<N> n; // necropsy: ignore[op-recursive-destructor]\n};", 0),
    ],
)
def test_destructors(text: str, count: int) -> None:
    text = text.replace(
        "struct N { std::unique_ptr<N> n; //", "struct N { // necropsy: ignore[op-recursive-destructor]\n//"
    )
    assert rules(text) == ["op-recursive-destructor"] * count


@pytest.mark.parametrize(
    "declaration",
    [
        "float a[4000000];",
        "std::array<std::array<double, 1024>, 1024> a;",
        "Eigen::TensorFixedSize<float, Eigen::Sizes<1024, 1024>> a;",
        "Block<float, 1024> a;",
        "Blocks a[4];",
        "ROW(a)",
    ],
)
def test_large_frames(declaration: str) -> None:
    head = "#define SIDE 1024\n#define ROW(name) float name[SIDE][SIDE];\n"
    types = "template <typename T, int N> struct Block { T v[N][SIDE]; }; using Blocks = Block<char, SIDE>;\n"
    (one,) = found(f"{head}{types}void F() {{ int n = 0; {declaration} }}")
    assert (one.rule, one.place.line, one.names["variables"], one.confidence) == ("op-large-frame", 4, "a", "certain")
    assert one.is_in_macro == declaration.startswith("ROW")
    assert one.numbers["bytes"] >= 4 << 20


def test_the_size_of_a_template_within_a_template() -> None:
    text = "template <typename T> struct Functor { void Run() { T a[1 << 20]; } };\n"
    text += "template <typename T> struct FooOp { void Compute() { Functor<T>().Run(); } };\n"
    (one,) = found(text + 'REGISTER_KERNEL_BUILDER(Name("Foo").Device(DEVICE_CPU), FooOp<double>);')
    assert (one.function, one.numbers["bytes"]) == ("Functor::Run", 8 << 20)


def test_frames_that_fit() -> None:
    assert (
        rules("void F() { static float a[4000000]; float b[1000]; std::vector<float> c(1 << 30); float (*d)[9]; }")
        == []
    )
    assert found("void F() { float a[1000]; }", stack=16_000)[0].numbers["bytes"] == 4000


def test_an_error_in_one_function_costs_only_that_function(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = frames._judged

    def failing(one: Look, function: Function) -> CodeDefect | None:
        if function.name == "Bad":
            raise ValueError("no such node")
        return judged(one, function)

    monkeypatch.setattr(frames, "_judged", failing)
    text = "void Bad() { int a[9]; }\nvoid F() { float a[4000000]; }"
    defects, gaps = checks.of_unit(of_text("op.cc", text.encode(), Reader()), STACK)
    assert [one.rule for one in defects] == ["op-large-frame"]
    assert [one.part for one in gaps] == ["Bad at op.cc:1"]
