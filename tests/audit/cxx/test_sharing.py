"""Writes of several threads to one location, and members that Compute changes."""

from __future__ import annotations

import pytest
from cxx_kernels import found, kernel

START = (
    "auto in = x.flat<float>(); auto out = y->flat<float>(); auto ids = name.flat<int32>(); double sum = 0; "
    "std::atomic<int> count; std::vector<int> all; mutex mu; "
)


def shard(work: str) -> str:
    text = f"Shard(4, w, in.size(), 1, [&](int64_t b, int64_t e) {{ for (int64_t i = b; i < e; ++i) {{ {work} }} }});"
    return kernel(START + text)


@pytest.mark.parametrize(
    ("work", "case"),
    [
        ("sum += in(i);", "same"),
        ("out(0) += in(i);", "same"),
        ("all.push_back(i);", "same"),
        ("out(ids(i)) += in(i);", "scattered"),
        ("const int id = ids(i); out(id) += in(i);", "scattered"),
    ],
)
def test_writes_to_one_location(work: str, case: str) -> None:
    assert [one.case for one in found(shard(work), "op-shared-write")] == [case]


@pytest.mark.parametrize(
    "work",
    [
        "out(i) += in(i);",
        "double part = 0; part += in(i);",
        "count += 1;",
        "mutex_lock l(mu); sum += in(i);",
        "out(ids(i)) = in(i);",
        "if (ids(i) >= b && ids(i) < e) out(ids(i)) += in(i);",
    ],
)
def test_writes_of_one_shard(work: str) -> None:
    assert found(shard(work), "op-shared-write") == []


MEMBERS = (
    "int calls_ = 0; std::vector<int> all_; std::atomic<int> count_; mutex mu_; Counts counts_; std::mt19937 engine_;"
)
CLASSES = "struct Counts { void Add() { ++n; } void Safe() { mutex_lock l(mu); ++n; } int n; mutex mu; };\n"


@pytest.mark.parametrize(
    ("body", "member"),
    [
        ("++calls_;", "calls_"),
        ("this->calls_ = 3;", "calls_"),
        ("all_.push_back(1);", "all_"),
        ("all_[0] = 1;", "all_"),
        ("Helper();", "calls_"),
        ("all_.assign(3, 0);", "all_"),
        ("double v = dice(engine_);", "engine_"),
        ("counts_.Add();", "n"),
    ],
)
def test_members_that_compute_changes(body: str, member: str) -> None:
    text = kernel(body, before=CLASSES, members=MEMBERS + " void Helper() { calls_ += 2; }")
    assert [one.names["member"] for one in found(text, "op-kernel-state")] == [member]


@pytest.mark.parametrize(
    "body",
    [
        "mutex_lock lock(mu_); ++calls_;",
        "{ std::lock_guard<std::mutex> lock(mu_); Helper(); }",
        "++count_;",
        "int calls_ = 0; ++calls_;",
        "Locked();",
        "counts_.Safe();",
    ],
)
def test_members_under_a_lock(body: str) -> None:
    helpers = " void Helper() { calls_ += 2; } void Locked() TF_EXCLUSIVE_LOCKS_REQUIRED(mu_) { calls_ += 2; }"
    assert found(kernel(body, before=CLASSES, members=MEMBERS + helpers), "op-kernel-state") == []


def test_the_constructor_may_change_members() -> None:
    assert found(kernel("", members=MEMBERS, constructor="calls_ = 1; all_.resize(3);"), "op-kernel-state") == []
