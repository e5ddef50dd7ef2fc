"""Plugin of pytest: the fixture ``corgipile_audit``, which audits a loader and fails a test by the faults' names.

It lies beside the package and loads nothing of it until a test asks for the fixture.
"""

from typing import Any

import pytest


@pytest.fixture
def corgipile_audit() -> Any:
    """Return a function that audits a loader and raises AssertionError if it has a fault.

    Its arguments are those of `corgipile.quality.audit_loader`, and so is its result.
    """
    from corgipile.quality import audit_loader  # noqa: PLC0415 - most test runs do not audit

    def audit(make_loader: Any, **settings: Any) -> Any:
        __tracebackhide__ = True
        result = audit_loader(make_loader, **settings)
        if result.faults:
            pytest.fail(str(result), pytrace=False)
        return result

    return audit
