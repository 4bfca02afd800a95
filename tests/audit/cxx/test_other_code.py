"""Forms that public ops have and that were wrongly found to be faulty."""

from __future__ import annotations

import pytest
from cxx_kernels import found, kernel

CHECK = "std::tuple<bool, std::string> HasRank(const Tensor& tensor, int rank);\n"
TREE = """
template <typename Inner, typename Device>
struct Level {{
  {member} impl_;
  float coeff(int at) {{ return impl_.coeff(at); }}
}};
"""


@pytest.mark.parametrize("member", ["Level<Rest, Device>", "Level<typename Inner::Rest, Device>"])
def test_another_instance_of_a_template_is_no_recursion(member: str) -> None:
    text = kernel("", before=TREE.format(member=member))
    assert not found(text, "op-recursion", "op-recursive-destructor")


def test_the_same_instance_is_a_recursion() -> None:
    text = kernel("", before=TREE.format(member="std::unique_ptr<Level<Inner, Device>>").replace("impl_.", "impl_->"))
    assert {one.rule for one in found(text, "op-recursion", "op-recursive-destructor")} >= {"op-recursive-destructor"}


@pytest.mark.parametrize(
    ("checked", "rules"),
    [
        ("std::tie(good, why) = HasRank(x, 2); OP_REQUIRES(context, good, errors::InvalidArgument(why));", []),
        ("std::tie(good, why) = HasRank(x, 2);", ["op-rank-unchecked"]),
    ],
)
def test_a_tuple_with_a_judgement(checked: str, rules: list[str]) -> None:
    body = f"bool good; std::string why; {checked} auto in = x.matrix<float>(); Use(in(0, 0));"
    assert [one.rule for one in found(kernel(body, before=CHECK), "op-rank-unchecked")] == rules


@pytest.mark.parametrize(
    ("body", "cases"),
    [
        ("const int64_t rows = x.dim_size(0); Use(rows);", ["0"]),
        ("const int64_t columns = x.dim_size(1); Use(columns);", ["1"]),
        ('OP_REQUIRES(context, x.dim_size(0) == 3, errors::InvalidArgument("x"));', []),
        ('OP_REQUIRES(context, x.dim_size(1) == 3, errors::InvalidArgument("x"));', ["1"]),
    ],
)
def test_only_the_first_dimension_does_not_abort(body: str, cases: list[str]) -> None:
    assert [one.names["rank"] for one in found(kernel(body), "op-rank-unchecked")] == cases


_POOL = 'thread::ThreadPool pool(Env::Default(), "work", 2);'
_SHARED = 'auto pool = std::make_unique<thread::ThreadPool>(Env::Default(), "work", 2);'
_RUN = "[&n]() { n = 2; });"


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (f"int64_t n = 0; {_POOL} pool.Schedule({_RUN}", 0),
        (f"int64_t n = 0; {_SHARED} pool->Schedule({_RUN}", 0),
        (f"{_POOL} int64_t n = 0; pool.Schedule({_RUN}", 1),
        (f"int64_t n = 0; thread::ThreadPool* pool = Pool(); pool->Schedule({_RUN}", 1),
    ],
)
def test_a_pool_of_its_own_ends_before_what_was_declared_first(body: str, count: int) -> None:
    assert len(found(kernel(body), "op-dangling-view")) == count


@pytest.mark.parametrize(
    ("factor", "count"), [("static_cast<wide>(rows)", 0), ("static_cast<int>(rows)", 1), ("rows", 1)]
)
def test_a_cast_to_a_type_of_the_project(factor: str, count: int) -> None:
    body = "auto v = name.flat<int32>(); const int rows = v(0); const int columns = v(1);"
    text = kernel(f"{body} int64_t n = {factor} * columns; Use(n);").replace("name: string", "name: int32")
    assert len(found(text, "op-size-overflow")) == count


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ("int64_t{3} * groups * n == x.NumElements()", 0),
        ("groups > 0", 1),
    ],
)
def test_a_product_that_is_the_size_of_an_input_bounds_its_factors(asked: str, count: int) -> None:
    text = kernel(
        'OP_REQUIRES(context, name.NumElements() == 2, errors::InvalidArgument("name"));'
        "auto v = name.flat<int64_t>(); const int64_t n = v(0), groups = v(1);"
        f'OP_REQUIRES(context, n > 0 && groups > 0 && {asked}, errors::InvalidArgument("n"));'
        "std::vector<float> row(n); Use(row);"
    ).replace("name: string", "name: int64")
    assert len(found(text, "op-allocation-unchecked")) == count


@pytest.mark.parametrize(("given", "count"), [("dtype_, shape_, &made", 0), ("DT_FLOAT, x.shape(), &made_", 1)])
def test_only_the_last_argument_of_allocate_temp_is_changed(given: str, count: int) -> None:
    body = f"Tensor made; OP_REQUIRES_OK(context, context->allocate_temp({given}));"
    members = "DataType dtype_; TensorShape shape_; Tensor made_;"
    assert len(found(kernel(body, members=members), "op-kernel-state")) == count


def test_a_list_has_as_many_tensors_as_its_attribute_says() -> None:
    body = (
        'OpInputList keys; OP_REQUIRES_OK(context, context->input_list("keys", &keys)); CHECK_EQ(keys.size(), count_);'
    )
    constructor = 'OP_REQUIRES_OK(context, context->GetAttr("N", &count_));'
    assert not found(kernel(body, members="int64_t count_;", constructor=constructor), "op-check-on-input")


def test_an_array_in_two_pairs_of_braces() -> None:
    body = "const std::array<int64_t, 2> pair{{1, 2}}; Use(pair[1]);"
    assert not found(kernel(body))
