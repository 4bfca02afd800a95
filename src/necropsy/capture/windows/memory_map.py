"""Memory at an address, in Linux' words. Sources: ``MEMORY_BASIC_INFORMATION``, *Memory Protection Constants*."""

from __future__ import annotations

import msgspec

from necropsy.capture.windows.modules import ModuleImages
from necropsy.capture.windows.target import ProcessSnapshot
from necropsy.formats.minidump_records import COMMITTED, GUARD, MemoryInfo
from necropsy.model import Address, Fault, Mapping

_RIGHTS = {
    0x01: "---",
    0x02: "r--",
    0x04: "rw-",
    0x08: "rw-",
    0x10: "--x",
    0x20: "r-x",
    0x40: "rwx",
    0x80: "rwx",
}
_LETTERS = {"read": "r", "write": "w", "exec": "x"}
_SHARED = 0x40000
"""``MEM_MAPPED``: a view of a section."""


def permissions(one: MemoryInfo) -> str:
    """``rw-p`` and the like; what is reserved only may not be used at all."""
    rights = _RIGHTS.get(one.protect & 0xFF, "---") if one.state == COMMITTED else "---"
    if one.protect & GUARD:
        rights = "---"
    return rights + ("s" if one.type == _SHARED else "p")


def mapping_at(stopped: ProcessSnapshot, address: int) -> Mapping | None:
    """The committed memory that holds ``address``; None where there is none, or nobody wrote it down."""
    one = stopped.regions.at(address) if stopped.regions is not None else None
    if one is None or one.state != COMMITTED or not 0 < one.size <= (1 << 64) - one.base:
        return None
    module = stopped.module_at(address)
    return Mapping(
        low=Address(one.base),
        high=Address(one.base + one.size),
        permissions=permissions(one),
        path=module.path if module is not None else None,
    )


def complete(stopped: ProcessSnapshot, images: ModuleImages, fault: Fault) -> Fault:
    """The fault with what lies at its address: memory that may not be used so, or none."""
    if fault.address is None or fault.code is not None or fault.signal != "SIGSEGV":
        return fault
    if stopped.regions is None:
        known = _section_at(images, fault.address) or _stack_at(stopped, fault.address)
        # Where the access is allowed, somebody has changed what may be done there since: nothing is known of it.
        if known is None or fault.access is None or _LETTERS[fault.access] in known.permissions:
            return fault
        return msgspec.structs.replace(fault, code="SEGV_ACCERR", mapping=known)
    mapping = mapping_at(stopped, fault.address)
    code = "SEGV_ACCERR" if mapping is not None else "SEGV_MAPERR"
    below = None if mapping is not None else _below(stopped, fault.address)
    return msgspec.structs.replace(fault, code=code, mapping=mapping, mapping_below=below)


def _section_at(images: ModuleImages, address: int) -> Mapping | None:
    """The section of an image that holds ``address``, unless its protection was changed."""
    loaded = images.at(address)
    image = loaded.image if loaded is not None else None
    section = image.section_at(address - loaded.low) if image is not None and loaded is not None else None
    if section is None or loaded is None:
        return None
    low = loaded.low + section.rva
    return Mapping(
        low=Address(low),
        high=Address(low + section.size),
        permissions=f"r{'w' if section.writable else '-'}{'x' if section.executable else '-'}p",
        path=loaded.module.path,
    )


def _stack_at(stopped: ProcessSnapshot, address: int) -> Mapping | None:
    """The stack that holds ``address``, as far as the dump has it: it is mapped, and not code."""
    for thread in stopped.threads:
        one = thread.stack
        if one is not None and one.address <= address < one.address + one.size:
            return Mapping(low=Address(one.address), high=Address(one.address + one.size), permissions="rw-p")
    return None


def _below(stopped: ProcessSnapshot, address: int) -> Mapping | None:
    """The nearest memory that ends at or below an unmapped address."""
    hole = stopped.regions.at(address) if stopped.regions is not None else None
    return mapping_at(stopped, hole.base - 1) if hole is not None and hole.base > 0 else None
