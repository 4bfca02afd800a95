"""Types that own objects of their own type: a destructor that frees these one by one."""

from __future__ import annotations

import re

from necropsy.audit.cxx.looking import Look
from necropsy.audit.cxx.model import Class, Field, Function
from necropsy.audit.cxx.types import Type, parsed
from necropsy.audit.cxx_repairs.edits import Edit, Repair
from necropsy.audit.cxx_repairs.includes import included
from necropsy.audit.cxx_repairs.site import NoRepairError, Site
from necropsy.model import CodeDefect

_LISTS = frozenset({"vector", "deque", "list", "InlinedVector"})
_MAPS = frozenset({"map", "unordered_map", "multimap", "flat_hash_map", "btree_map", "node_hash_map"})


def recursive(look: Look, defect: CodeDefect) -> Repair:
    """With the moves and the constructor that a declared destructor takes away."""
    cls = next(
        (
            one
            for several in look.unit.classes.values()
            for one in several
            if one.name == defect.names["type"]
            and one.file.path == defect.place.path
            and one.place.line == defect.place.line
        ),
        None,
    )
    if cls is None or cls.own_destructor or cls.template or "through" in defect.names or cls.kind == "union":
        raise NoRepairError("not a type of its own")
    if any(name.startswith("~") for name in cls.declared):
        raise NoRepairError("it declares a destructor")
    held = cls.node.child_by_field_name("body")
    if held is None:
        raise NoRepairError("no body")
    owning = [each for each in cls.fields if each.name in defect.names["members"].split(", ")]
    name = cls.name
    own = cls.name in cls.declared
    if not own and any(
        re.search(rf"(?<!struct )(?<!class )\b{name}\s*\{{\s*[^\s}}]".encode(), one.text) for one in look.unit.files
    ):
        raise NoRepairError("it is initialised as an aggregate")
    site = Site(look, _in_file(look, cls), cls.node)
    lines = [
        *([] if own else [f"{name}() = default;"]),
        f"{name}({name}&&) = default;",
        f"{name}& operator=({name}&&) = default;",
        f"~{name}() {{",
        f"  std::vector<std::unique_ptr<{name}>> waiting;",
        "  MoveChildrenTo(&waiting);",
        "  while (!waiting.empty()) {",
        f"    std::unique_ptr<{name}> child = std::move(waiting.back());",
        "    waiting.pop_back();",
        "    child->MoveChildrenTo(&waiting);",
        "  }",
        "}",
        f"void MoveChildrenTo(std::vector<std::unique_ptr<{name}>>* waiting) {{",
        *(f"  {line}" for each in owning for line in _moved(name, each)),
        "}",
    ]
    if "MoveChildrenTo" in cls.declared:
        raise NoRepairError("the name is taken")
    return Repair(
        (_inserted(site, cls, held.start_byte, lines), *included(site, "memory", "utility", "vector")),
        f"frees the children of `{name}` in a loop",
    )


def _in_file(look: Look, cls: Class) -> Function:
    """Any function of the file, because a site has one."""
    for one in look.unit.functions:
        if one.file is cls.file:
            return one
    raise NoRepairError("no function in this file")


def _moved(name: str, member: Field) -> list[str]:
    """Statements that move what one member owns."""
    if _owns(member.type, name):
        return [f"if ({member.name} != nullptr) waiting->push_back(std::move({member.name}));"]
    last, arguments = member.type.last, member.type.arguments
    if last in _LISTS and arguments and _owns(parsed(arguments[0]), name):
        of_each = "each"
    elif last in _MAPS and len(arguments) > 1 and _owns(parsed(arguments[1]), name):
        of_each = "each.second"
    else:
        raise NoRepairError("it owns its children in another way")
    return [
        f"for (auto& each : {member.name}) {{",
        f"  if ({of_each} != nullptr) waiting->push_back(std::move({of_each}));",
        "}",
        f"{member.name}.clear();",
    ]


def _owns(type_: Type, name: str) -> bool:
    if type_.last != "unique_ptr" or len(type_.arguments) != 1 or type_.is_indirect:
        return False
    return parsed(type_.arguments[0]).last == name


def _inserted(site: Site, cls: Class, brace: int, lines: list[str]) -> Edit:
    """After the class's opening brace; what follows keeps its access."""
    indent = site.indent(site.insert(cls.node.start_byte, "").start)
    rest = cls.file.text[brace + 1 : cls.node.end_byte].lstrip()
    out = [f"{indent} public:"] if cls.kind == "class" else []
    out += [f"{indent}  {line}" for line in lines]
    if cls.kind == "class" and not re.match(rb"(?:public|private|protected)\s*:", rest):
        out += ["", f"{indent} private:"]
    text = site.eol + site.eol.join(out)
    at = site.insert(brace + 1, "").start
    line = re.match(rb"[ \t]*//[^\r\n]*", cls.file.original[at:])
    ends = re.match(rb"[ \t]*\r?\n", cls.file.original[at + (line.end() if line is not None else 0) :]) is not None
    at += line.end() if line is not None else 0
    return Edit(cls.file.path, at, at, (text if ends else text + site.eol).encode("latin-1"))
