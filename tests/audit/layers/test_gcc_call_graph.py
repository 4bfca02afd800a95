"""What is read of g++'s call graphs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.audit.layers.gcc_call_graph import GccCallGraph, short

SOURCE = """\
namespace {
struct Node { Node* next; ~Node() { delete next; } };
__attribute__((noinline)) void Keep(volatile char* where) { where[0] = 1; }
}
template <int N>
struct Level {
  static __attribute__((noinline)) void Solve() {
    volatile char own[10000 * N];
    Keep(own);
    Level<N - 1>::Solve();
    Keep(own);
  }
};
template <>
struct Level<0> { static void Solve() {} };
struct Op {
  virtual ~Op() {}
  virtual void Compute(void (*callback)(), Node* node);
};
void Op::Compute(void (*callback)(), Node* node) {
  Level<3>::Solve();
  callback();
  delete node;
}
struct Fill { void operator()(char* where); };
void Fill::operator()(char* where) { Keep(where); }
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[GccCallGraph, str]:
    folder = tmp_path_factory.mktemp("graph")
    (folder / "op.cc").write_text(SOURCE)
    words = ("g++", "-w", "-O1", "-fcallgraph-info=su,da", "-S", "-o", "op.s", "op.cc")
    subprocess.run(words, cwd=folder, check=True)
    return GccCallGraph((folder / "op.ci").read_text(), str(folder)), str(folder / "op.cc")


def test_the_deepest_path_through_all_instances_of_a_template(built: tuple[GccCallGraph, str]) -> None:
    graph, path = built
    (compute,) = graph.named("Op::Compute", path, 20)
    deepest = graph.deepest(compute)
    assert [one.name for one in deepest.steps[:4]] == ["Op::Compute", *["Level::Solve"] * 3]
    assert 60_000 < deepest.bytes < 61_000
    assert deepest.indirect == 1


def test_a_line_in_the_body_belongs_to_every_instance(built: tuple[GccCallGraph, str]) -> None:
    graph, path = built
    solved = [graph.functions[one].bytes // 10_000 for one in graph.named("Level<N>::Solve", path, 8)]
    assert sorted(solved) == [1, 2, 3]
    assert graph.named("Solve", path, 3) == []
    assert graph.named("Fill::operator()", path, 26) != []
    assert graph.named("Solve", str(Path(path).with_name("other.cc")), 8) == []


def test_a_turn_of_a_recursion(built: tuple[GccCallGraph, str]) -> None:
    graph, path = built
    turn = graph.turn(graph.named("Node::~Node", path, 2))
    assert turn is not None
    assert 8 <= turn <= 512
    assert graph.turn(graph.named("Op::Compute", path, 20)) is None


@pytest.mark.parametrize(
    ("label", "name"),
    [
        (
            "virtual void ns::FooOp<T>::Compute(tensorflow::OpKernelContext*) [with T = std::vector<int>]",
            "FooOp::Compute",
        ),
        ("int twice(int)", "twice"),
        ("{anonymous}::Functor<Map<T, N> >::operator()(int) const", "Functor::operator"),
        ("void (anonymous namespace)::Fill(double*)", "Fill"),
        ("ns::Op::Compute(Context*)::<lambda(int)>", "lambda"),
        ("", ""),
    ],
)
def test_names_without_namespaces_and_arguments(label: str, name: str) -> None:
    assert short(label) == name


@given(st.text(alphabet='node edge:{}"\\n 12:3abytes()(static)<>', max_size=300))
def test_any_text_is_read(text: str) -> None:
    for wrapped in (
        text,
        f'node: {{ title: "{text}" label: "{text}"',
        f'node: {{ title: "a" label: "f\\nx.cc:1:1\\n{text}"',
    ):
        graph = GccCallGraph(wrapped, "/p")
        assert all(graph.deepest(number).bytes >= 0 for number in range(len(graph.functions)))
