"""What the comparison of two runs says about each test."""

import dataclasses
import json


@dataclasses.dataclass
class Comparison:
    """All tests of one driver at one server, sorted by how the two runs ended."""

    driver: str
    server: str
    tests: int = 0
    passed_direct: int = 0
    skipped: int = 0
    fails_direct: list = dataclasses.field(default_factory=list)
    only_tidegate: list = dataclasses.field(default_factory=list)
    expected: list = dataclasses.field(default_factory=list)
    trouble: str = ""
    seconds: tuple = (0.0, 0.0)

    def bad(self):
        """Whether Tidegate, or the harness, is at fault."""
        return bool(self.only_tidegate or self.trouble)


def load_expected(path):
    """Known differences: `{driver: {test: reason}}`; the driver `*` is every driver, a test's name may end in `*`."""
    return json.loads(path.read_text())


def reason_for(expected, driver, test):
    """Why this test may differ, if that is known."""
    known = {**expected.get("*", {}), **expected.get(driver, {})}
    for name, reason in known.items():
        if test == name or (name.endswith("*") and test.startswith(name[:-1])):
            return reason
    return None


def compare(driver, server, direct, proxied, expected):
    """Sorts the tests of both runs. A test that passes direct must pass through Tidegate and have seen the same."""
    result = Comparison(driver, server, tests=len(direct))
    for test, first in direct.items():
        second = proxied.get(test)
        if first.status == "skip":
            result.skipped += 1
        elif first.status == "fail":
            result.fails_direct.append({"test": test, "detail": first.detail})
        else:
            result.passed_direct += 1
            difference = differs(first, second)
            reason = reason_for(expected, driver, test)
            if difference and reason:
                result.expected.append({"test": test, "reason": reason})
            elif difference:
                result.only_tidegate.append({"test": test, **difference})
    return result


def differs(first, second):
    """What is different through Tidegate; None when nothing is."""
    if second is None:
        return {"tidegate": "did not run"}
    if second.status != "pass":
        return {"tidegate": f"{second.status}: {second.detail}"}
    if second.detail != first.detail:
        return {"direct": around(first.detail, second.detail), "tidegate": around(second.detail, first.detail)}
    return None


def around(text, other):
    """The part of a text where another begins to differ."""
    same = next((i for i, (a, b) in enumerate(zip(text, other)) if a != b), min(len(text), len(other)))
    start = max(0, same - 60)
    return ("..." if start else "") + text[start : same + 240]
