"""Types that own objects of their own type: their destructors call themselves, once for each level."""

from __future__ import annotations

import re
from collections.abc import Iterator

from necropsy.audit.cxx.looking import Look, where
from necropsy.audit.cxx.model import Class, Field, Function
from necropsy.audit.cxx.types import Type, is_other_instance, parsed
from necropsy.model import CodeDefect, CodeFact

_OWNERS = frozenset({"unique_ptr", "shared_ptr", "RefCountPtr", "intrusive_ptr"})
_HOLDERS = frozenset(
    {
        "vector",
        "deque",
        "list",
        "forward_list",
        "array",
        "optional",
        "pair",
        "tuple",
        "variant",
        "map",
        "multimap",
        "set",
    }
    | {"unordered_map", "unordered_set", "flat_hash_map", "flat_hash_set", "btree_map", "InlinedVector", "FixedArray"}
)
_LOOP = re.compile(r"\b(?:while|for)\b")
_TAKES = re.compile(
    r"\bstd::move\b|\brelease\s*\(|\.swap\s*\(|\bstd::swap\b|\bexchange\b|\bsplice\s*\(|\bpop_back\s*\("
)
_BYTES_PER_LEVEL = 48
"""A destructor and the one of its owning pointer, compiled with -O2; without optimisation it is more."""


def look(one: Look) -> Iterator[CodeDefect]:
    """A finding for each circle of types that own each other."""
    owned = {cls.qualified: _owned(one, cls) for several in one.unit.classes.values() for cls in several[:1]}
    told: set[str] = set()
    for name, members in owned.items():
        path = _back_to(name, owned)
        if path is None or name in told:
            continue
        told.update(cls for cls, _ in path)
        classes = [one.unit.classes[cls][0] for cls, _ in path]
        if any(_frees_in_a_loop(one, cls) for cls in classes):
            continue
        yield _defect(one, classes, [member for _, member in path], members)


def _defect(one: Look, classes: list[Class], path: list[Field], members: list[tuple[str, Field]]) -> CodeDefect:
    first = classes[0]
    own = [member for name, member in members if name == first.qualified] or path
    destructor = _destructor(one, first)
    user = destructor or next((each for each in one.unit.functions if _uses(each, first)), None)
    return one.defect(
        "op-recursive-destructor",
        "declared" if destructor is not None else "implicit",
        first.place,
        "type",
        function=user,
        name=f"{first.name}::~{first.name}",
        others=tuple(one.place(each.place, "member") for each in own),
        names={"type": first.name, "members": ", ".join(each.name for each in own)}
        | ({"through": ", ".join(each.name for each in classes[1:])} if len(classes) > 1 else {}),
        numbers={"bytes": _BYTES_PER_LEVEL * len(classes), "levels": one.stack // (_BYTES_PER_LEVEL * len(classes))},
        facts=tuple(
            CodeFact(claim="owns an object of its own type", seen=f"{each.type} {each.name}", where=where(each.place))
            for each in own
        ),
        severity="warning",
        confidence="likely",
        stack=one.stack,
    )


def _uses(function: Function, cls: Class) -> bool:
    return re.search(rf"\b{re.escape(cls.name)}\b", function.text(function.node)) is not None


def _owned(one: Look, cls: Class) -> list[tuple[str, Field]]:
    """The classes of the project that objects of this one own, through which members."""
    found = []
    destructor = _destructor(one, cls)
    freed = destructor.text(destructor.body) if destructor is not None else ""
    for member in cls.fields:
        if member.is_static:
            continue
        for type_ in _held(member.type, deletes=_deletes(freed, member.name)):
            other = one.unit.class_named(type_.name, cls.qualified)
            if other is cls and is_other_instance(type_, (each.name for each in cls.template), cls.arguments):
                continue
            if other is not None:
                found.append((other.qualified, member))
    return found


def _deletes(text: str, name: str) -> bool:
    """``delete left_;``, or a loop over the member that deletes each."""
    if re.search(rf"\bdelete\s*(?:\[\s*\])?\s*(?:this->)?{re.escape(name)}\b", text):
        return True
    loop = re.search(rf"for\s*\(\s*(?:const\s+)?[\w:]+\s*[*&]*\s*(\w+)\s*:\s*(?:this->)?{re.escape(name)}\s*\)", text)
    return loop is not None and re.search(rf"\bdelete\s+{loop[1]}\b", text) is not None


def _held(type_: Type, *, deletes: bool, depth: int = 0) -> Iterator[Type]:
    """What is destroyed with a value of this type, behind pointers and in containers."""
    if type_.reference or depth > 6:
        return
    if type_.pointers:
        if deletes:
            yield Type(type_.name, type_.arguments)
    elif type_.last in _OWNERS and type_.arguments:
        inner = parsed(type_.arguments[0])
        yield from _held(inner, deletes=deletes, depth=depth + 1)
    elif type_.last in _HOLDERS:
        for text in type_.arguments:
            yield from _held(parsed(text), deletes=deletes, depth=depth + 1)
    else:
        yield type_


def _back_to(name: str, owned: dict[str, list[tuple[str, Field]]]) -> list[tuple[str, Field]] | None:
    """The shortest way from a class to itself: each class with the member that leads on."""
    seen: set[str] = set()
    frontier: list[tuple[str, list[tuple[str, Field]]]] = [(name, [])]
    while frontier:
        at, path = frontier.pop(0)
        for other, member in owned.get(at, ()):
            if other == name:
                return [*path, (at, member)]
            if other not in seen:
                seen.add(other)
                frontier.append((other, [*path, (at, member)]))
    return None


def _destructor(one: Look, cls: Class) -> Function | None:
    return next((each for each in one.unit.methods(cls) if each.is_destructor), None)


def _frees_in_a_loop(one: Look, cls: Class) -> bool:
    """Its destructor takes the children out and frees them one by one."""
    destructor = _destructor(one, cls)
    if destructor is None:
        return False
    code = destructor.text(destructor.body)
    called = [to.text(to.body) for _, to in one.calls.edges[id(destructor)]]
    return any(_LOOP.search(text) and _TAKES.search(text) for text in (code, *called))
