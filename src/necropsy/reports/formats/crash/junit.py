"""Crashes as JUnit XML, which CI services show as failed tests: one test case for each death, or for each bug.

The elements are those that the schema of Jenkins' xUnit plugin (junit-10.xsd) allows.
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

from necropsy.model import Document
from necropsy.reports import incidents
from necropsy.reports.incidents import Incident
from necropsy.reports.rule_page import Source
from necropsy.reports.terminal import clean, without_commands


def render(document: Document, _pages: Source | None = None) -> str:
    """A suite with a failure for each death or open bug; closed bugs are skipped. Without any, one test passes."""
    found = incidents.of_document(document)
    closed = sum(one.closed for one in found)
    counts = {"tests": str(len(found) or 1), "failures": str(len(found) - closed), "errors": "0"}
    root = ET.Element("testsuites", {"name": "necropsy", **counts})
    suite = ET.SubElement(root, "testsuite", {"name": f"necropsy {document.kind}", **counts, "skipped": str(closed)})
    properties = ET.SubElement(suite, "properties")
    for name, value in (("report", document.id), ("version", document.tool.version)):
        ET.SubElement(properties, "property", {"name": name, "value": clean(value)})
    for one in found:
        _case(suite, one)
    if not found:
        ET.SubElement(suite, "testcase", {"classname": "necropsy", "name": "no process died", "time": "0"})
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode", xml_declaration=False)
    return without_commands(f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n')


def _case(suite: ET.Element, one: Incident) -> None:
    name = f"{one.title} [{one.key[:12]}]"
    case = ET.SubElement(suite, "testcase", {"classname": f"necropsy.{clean(one.rule)}", "name": name, "time": "0"})
    if one.closed:
        ET.SubElement(case, "skipped", {"message": one.details[-1] if one.details else "closed"})
        return
    failure = ET.SubElement(case, "failure", {"type": clean(one.rule), "message": one.title})
    failure.text = "\n".join(one.details)
    lines = list(incidents.stack_lines(one))
    if lines:
        ET.SubElement(case, "system-out").text = "\n".join(lines)
