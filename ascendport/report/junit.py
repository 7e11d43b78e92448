"""Results of verify as JUnit XML, for CI: a suite a port, a test case a check's case."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from ascendport.report.facts import Facts
from ascendport.report.files import write_whole


def document(facts: Facts) -> bytes:
    """JUnit XML for the facts of verify. ``not run`` is a skipped test, never a passed one."""
    root = ElementTree.Element("testsuites", name="ascendport verify")
    for port in facts["ports"]:
        suite = ElementTree.SubElement(root, "testsuite", name=port["name"])
        counts = {"tests": 0, "failures": 0, "skipped": 0}
        for check in port["checks"]:
            cases = list(check["cases"])
            if check["outcome"] not in {case["outcome"] for case in cases}:
                # A verdict that no case bears (it ended before them) is a test case of its own.
                cases.append({"case": check["check"], **check})
            for case in cases:
                counts["tests"] += 1
                node = ElementTree.SubElement(
                    suite,
                    "testcase",
                    classname=f"{port['name']}.{check['check']}",
                    name=case["case"],
                )
                if case["outcome"] == "failed":
                    counts["failures"] += 1
                    ElementTree.SubElement(node, "failure", message=case["reason"])
                elif case["outcome"] == "not_run":
                    counts["skipped"] += 1
                    ElementTree.SubElement(node, "skipped", message=case["reason"])
        for key, count in counts.items():
            suite.set(key, str(count))
    ElementTree.indent(root)
    written: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return written


def write(facts: Facts, path: Path) -> None:
    """Raises UserError where the file cannot be written."""
    write_whole(path, document(facts), "JUnit file", "--junit")
