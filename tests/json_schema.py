"""The part of JSON Schema (draft 2020-12) that our schema uses, as a validator: a second reading of the document.

Written from the specification, with nothing of ``record``; an unknown keyword is an error, not something to pass over.
"""

from __future__ import annotations

import re
from typing import Any

ANNOTATIONS = {"title", "description", "default", "$schema", "$defs"}
TYPES: dict[str, Any] = {"object": dict, "array": list, "string": str, "null": type(None), "boolean": bool}


def errors(value: Any, schema: dict[str, Any], root: dict[str, Any], at: str = "$") -> list[str]:
    """Every place where ``value`` is not as the schema says."""
    found: list[str] = []
    for keyword, says in schema.items():
        if keyword in ANNOTATIONS:
            continue
        if keyword == "$ref":
            found += errors(value, root["$defs"][says.removeprefix("#/$defs/")], root, at)
        elif keyword == "type":
            if not _is(value, says):
                found.append(f"{at}: {value!r} is no {says}")
        elif keyword == "enum":
            if value not in says:
                found.append(f"{at}: {value!r} is none of {says}")
        elif keyword == "const":
            if value != says:
                found.append(f"{at}: {value!r} is not {says!r}")
        elif keyword == "anyOf":
            if all(errors(value, one, root, at) for one in says):
                found.append(f"{at}: {value!r} fits none")
        elif keyword == "required":
            found += [f"{at}: {name} is missing" for name in says if isinstance(value, dict) and name not in value]
        elif keyword == "properties":
            if isinstance(value, dict):
                found += [
                    error
                    for name, one in says.items()
                    if name in value
                    for error in errors(value[name], one, root, f"{at}.{name}")
                ]
        elif keyword == "additionalProperties":
            if isinstance(value, dict) and isinstance(says, dict):
                rest = value.keys() - schema.get("properties", {}).keys()
                found += [error for name in rest for error in errors(value[name], says, root, f"{at}.{name}")]
        elif keyword == "items":
            if isinstance(value, list) and isinstance(says, dict):
                found += [
                    error for place, one in enumerate(value) for error in errors(one, says, root, f"{at}[{place}]")
                ]
        elif keyword == "prefixItems":
            if isinstance(value, list):
                pairs = enumerate(zip(value, says, strict=False))
                found += [error for place, (each, one) in pairs for error in errors(each, one, root, f"{at}[{place}]")]
        elif keyword in {"minItems", "maxItems"}:
            if isinstance(value, list) and (len(value) < says if keyword == "minItems" else len(value) > says):
                found.append(f"{at}: {len(value)} items, {keyword} is {says}")
        elif keyword == "pattern":
            if isinstance(value, str) and not re.search(says, value):
                found.append(f"{at}: {value!r} does not match {says}")
        else:
            raise NotImplementedError(keyword)
    return found


def _is(value: Any, kind: str) -> bool:
    if kind == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, TYPES[kind])
