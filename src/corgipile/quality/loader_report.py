"""Result of a loader's audit, as text, JUnit and annotations of GitHub Actions."""

from dataclasses import asdict, dataclass
from typing import Any
from xml.etree import ElementTree as ET

from corgipile.outputs import Kind, PathLike, replacing
from corgipile.quality.audited import AuditReport
from corgipile.quality.faults import Fault

__all__ = ["Check", "LoaderAudit"]

JUNIT = Kind("JUnit file", lambda path: b'<testsuite name="corgipile audit"' in path.read_bytes()[:200])


@dataclass(frozen=True)
class Check:
    """One check of an audit: its name and the faults that it found."""

    name: str
    faults: tuple[Fault, ...]


@dataclass(frozen=True)
class LoaderAudit:
    """Result of `audit_loader`; prints as text.

    Attributes:
        checks: What was run, and the faults that each found.
        report: Report on the epochs at the first world and number of workers, with the faults of all checks.
    """

    checks: tuple[Check, ...]
    report: AuditReport

    def __str__(self) -> str:
        lines = [self.verdict, ""]
        for check in self.checks:
            lines += [
                f"{'FAULT' if check.faults else 'ok':5}  {check.name}",
                *(f"       {one}" for one in check.faults),
            ]
        return "\n".join(lines)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Return the faults of all checks, each name once."""
        return self.report.faults

    @property
    def verdict(self) -> str:
        """Return the result in one sentence."""
        names = ", ".join(fault.name for fault in self.faults) or "no fault found"
        return f"{len(self.checks)} checks: {names}."

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain dictionaries and lists, for JSON."""
        return {"verdict": self.verdict, "checks": [asdict(check) for check in self.checks]}

    def annotations(self) -> list[str]:
        """Return an error annotation of GitHub Actions for each fault."""
        faults = [(fault.name, _line(f"{fault.epoch}: {fault.detail}").replace("%", "%25")) for fault in self.faults]
        return [f"::error title=corgipile audit%3A {name}::epoch {text}" for name, text in faults]

    def save_junit(self, path: PathLike, *, overwrite: bool = False) -> None:
        """Write a JUnit file with a test case for each check; replace a file of another kind with ``overwrite``."""
        failures = sum(bool(check.faults) for check in self.checks)
        suite = ET.Element("testsuite", name="corgipile audit", tests=str(len(self.checks)), failures=str(failures))
        for check in self.checks:
            case = ET.SubElement(suite, "testcase", classname="corgipile.audit", name=check.name)
            for fault in check.faults:
                ET.SubElement(case, "failure", type=fault.name, message=_line(str(fault)))
        with replacing(path, JUNIT, overwrite=overwrite) as temporary:
            ET.ElementTree(suite).write(temporary, encoding="utf-8", xml_declaration=True)


def _line(text: str) -> str:
    """Return text as one line without control characters, which neither format can hold."""
    return "".join(character if character.isprintable() else " " for character in text)
