"""Forms that public ops have and that were wrongly found to be faulty."""

from __future__ import annotations

from pathlib import Path

import pytest
from cxx_kernels import found, kernel

from necropsy.audit.cxx.load import Reader, load

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


REQUIRE = 'OP_REQUIRES(context, {0}, errors::InvalidArgument("x"));'
_LIKE = REQUIRE.format("x.shape() == name.shape() || TensorShapeUtils::IsScalar(name.shape())")
_FIRST = "auto f = name.flat<float>(); Use(f(0));"
_PAIRED = "const float* b = name.flat<float>().data(); for (int i = 0; i < x.NumElements(); ++i) Use(b[i]);"
_BINS = (
    REQUIRE.format("name.NumElements() > 0 && x.NumElements() > 0")
    + "auto v = name.flat<int32>(); {0} const int i = v(0);"
)
_BIN = "auto p = x.flat<float>(); if (i < p.size()) Use(p(i));"
_ALL = (
    "Tensor good; OP_REQUIRES_OK(context, context->allocate_temp(DT_BOOL, TensorShape({}), &good));"
    "good.scalar<bool>().device(Device()) = (v >= 0).all();"
)
_COST = REQUIRE.format("name.NumElements() == 2") + "auto v = name.flat<int32>(); const int a = v(0), b = v(1);"


@pytest.mark.parametrize(
    ("body", "rules"),
    [
        # one of two cases holds, and each of them is enough
        (f"{_LIKE} if (y->NumElements() == 0) return; {_FIRST}", []),
        (f"{_LIKE} {_FIRST}", ["op-element-unchecked"]),
        # an object of a class that is not known was made of the tensors, and is asked
        (f"BCast both(BCast::FromShape(x.shape()), name.shape()); if (!both.IsValid()) return; {_PAIRED}", []),
        (f"BCast both(BCast::FromShape(x.shape()), name.shape()); {_PAIRED}", ["op-sizes-unrelated"]),
        (f"TensorShapeProto p; name.shape().AsProto(&p); OP_REQUIRES_OK(context, Fits(p)); {_PAIRED}", []),
        (f"CHECK_SHAPE(x, name); {_PAIRED}", []),
        # what was asked of a tensor of the same shape
        (f"OP_REQUIRES_OK(context, Fits(x)); {REQUIRE.format('x.IsSameSize(name)')} name.scalar<float>();", []),
        # a comparison of all values, kept in a tensor
        (_BINS.format(_ALL) + REQUIRE.format("good.scalar<bool>()()") + _BIN, []),
        (_BINS.format(_ALL) + _BIN, ["op-index-unchecked"]),
        # the number of the dimension is not known
        ("std::vector<int> d; if (Odd()) d.push_back(Pick()); for (int i : d) Use(7 % x.dim_size(i));", []),
        # what failed to be there, or was refused as a size, is not used
        ('Status s = context->input_list("l", &l); if (!s.ok()) return; name.scalar<float>();', ["op-rank-unchecked"]),
        (_COST + "TensorShape s({a}); std::vector<float> v(a); Use(v, s);", ["op-allocation-unchecked"]),
        # a maximum is one of two numbers
        (REQUIRE.format("x.dims() >= 1") + "Use(x.dim_size(std::max(x.dims() - 2, 0)));", []),
        (REQUIRE.format("x.dims() >= 1") + "Use(x.dim_size(std::max(x.dims() - 2, 1)));", ["op-rank-unchecked"]),
        # two elements of a vector are two numbers
        ("std::vector<int> d; for (int i = 0; i < 9; ++i) d.push_back(Pick(i)); Use(7 % (d[1] - d[0]));", []),
        # the address of an element is no access
        ("auto f = name.flat<float>(); const float* p = &(f(0)); Use(p);", []),
        ("auto f = name.flat<float>(); const float p = (f(0)); Use(p);", ["op-element-unchecked"]),
        # a comparison refuses the arbitrary first size of a scalar, there and behind it
        (REQUIRE.format("name.dim_size(0) == 3") + "Use(name.dim_size(0));", []),
        ("const ResourceHandle& h = name.flat<ResourceHandle>()(0); Use(h);", []),
        (_COST + "const double cost = 2.0; const double d = a * b * cost; Use(d);", []),
        (_COST + "const int64_t d = a * b; Use(d);", ["op-size-overflow"]),
        (
            _COST + 'OP_REQUIRES(context, a >= 0, errors::InvalidArgument("a")); auto m = y->shaped<float, 2>({1, a});',
            [],
        ),
        (_COST + "TensorShape s; s.AddDim(1); s.set_dim(0, a);", ["op-allocation-unchecked"]),
    ],
)
def test_checks_in_other_words(body: str, rules: list[str]) -> None:
    text = kernel(body).replace("name: string", "name: int32")
    other = {"op-type-unchecked"}
    assert [one.rule for one in found(text) if one.severity != "note" and one.rule not in other] == rules


@pytest.mark.parametrize(
    ("asked", "count"), [("x.shape().dim_size(i) != 0", 0), ("x.dim_size(i) > 0", 0), ("name.dim_size(i) > 0", 1)]
)
def test_a_check_of_each_size_in_a_loop(asked: str, count: int) -> None:
    loop = f"for (int i = 0; i < x.dims(); ++i) {{ {REQUIRE.format(asked)} }}"
    body = f"{loop} {REQUIRE.format('x.dims() == 2')} const int64_t batch = x.dim_size(0); CHECK_GT(batch, 0);"
    assert len(found(kernel(body), "op-check-on-input")) == count


def test_overloads_with_parameter_packs_are_no_recursion() -> None:
    overloads = """
template <class T, class... Rest> void Fill(std::vector<int64_t>& out, int64_t none, T first, Rest... rest) {
  out.push_back(first); Fill(out, none, rest...);
}
template <class T, class... Rest> std::vector<int64_t> Fill(int64_t none, T first, Rest... rest) {
  std::vector<int64_t> out; Fill(out, none, first, rest...); return out;
}
"""
    assert not found(kernel("Use(Fill(-1, 1, 2));", before=overloads), "op-recursion")


def test_a_header_named_from_the_top_of_the_project(tmp_path: Path) -> None:
    ops = tmp_path / "project" / "ops"
    ops.mkdir(parents=True)
    (ops / "sizes.h").write_text("inline int Rows() { return 3; }\n")
    (ops / "op.cc").write_text('#include "project/ops/sizes.h"\n#include "other/ops/sizes.h"\n')
    unit = load(str(ops / "op.cc"), Reader())
    assert [one.name for one in unit.functions] == ["Rows"]
    assert [one.part for one in unit.troubles] == ['header "other/ops/sizes.h"']


GET = """
struct Helper {{
  Status Get(OpKernelContext* context, const Tensor** out) const {{
    Status status = context->input("x", out);
    if (!status.ok()) return status;
    if ((*out)->dims() != {rank}) return errors::InvalidArgument("x");
    return OkStatus();
  }}
}};
"""


@pytest.mark.parametrize(("rank", "count"), [(2, 0), (3, 1)])
def test_an_input_that_a_helper_gets_and_checks(rank: int, count: int) -> None:
    body = "const Tensor* in; OP_REQUIRES_OK(context, helper_.Get(context, &in)); auto m = in->matrix<float>(); Use(m);"
    text = kernel(body, before=GET.format(rank=rank), members="Helper helper_;")
    assert len(found(text, "op-rank-unchecked")) == count


def test_inputs_by_name_and_by_number_may_be_the_same() -> None:
    asked = 'const Tensor* n; OP_REQUIRES_OK(context, context->input("name", &n));' + REQUIRE.format("n->dims() == 1")
    text = kernel(f"{asked} auto v = context->input(1).vec<float>(); Use(v);")
    unregistered = text[text.index("struct FooOp") :]
    assert not found(unregistered, "op-rank-unchecked")
    assert len(found(unregistered.replace("dims() == 1", "IsInitialized()"), "op-rank-unchecked")) == 1


BASE = "struct Reader {{ virtual int Read() {{ return 0; }} }};\nstruct Both : Reader {{ int Read() override {{ {0} }} {1} }};"


@pytest.mark.parametrize(
    ("read", "member", "count"),
    [
        ("return inner_->Read();", "std::unique_ptr<Reader> inner_;", 0),
        ("return inner_->Read();", "std::unique_ptr<Both> inner_;", 1),
        ("return Read();", "", 1),
    ],
)
def test_the_same_method_of_an_object_of_the_base_class(read: str, member: str, count: int) -> None:
    assert len(found(kernel("Use(1);", before=BASE.format(read, member)), "op-recursion")) == count


_ROWS = REQUIRE.format("name.NumElements() == 2") + "auto v = name.flat<int32>(); const int64_t n = v(0), m = v(1);"


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("const int64_t row = std::max<int64_t>(n, int64_t{0}); CHECK_GE(row, 0);", 0),
        ("const int64_t row = std::max<int64_t>(n, int64_t{0}); CHECK_GE(row, 3);", 1),
        (
            REQUIRE.format("int64_t{3} * n * m == x.NumElements()")
            + "assert(static_cast<int>(m) * n * 3 == x.dims());",
            0,
        ),
        ("assert(static_cast<int>(m) * n * 3 == x.dims());", 1),
    ],
)
def test_checks_that_cannot_fail(body: str, count: int) -> None:
    text = kernel(_ROWS + body).replace("name: string", "name: int32")
    assert len(found(text, "op-check-on-input")) == count
