"""The outcomes of a run, and how they are read from the output of each kind of program."""

import dataclasses
import json
import re
import xml.etree.ElementTree as ElementTree


@dataclasses.dataclass
class Outcome:
    """How one test ended: pass, fail or skip; `detail` is what it saw, or why it failed."""

    status: str
    detail: str = ""


def from_lines(output, _directory):
    """Lines `@@ {"test": ..., "status": ..., "detail": ...}` of this project's own programs."""
    outcomes = {}
    for line in output.splitlines():
        if line.startswith("@@ "):
            entry = json.loads(line[3:])
            outcomes[entry["test"]] = Outcome(entry["status"], entry["detail"])
    return outcomes


GO_STATUS = {"pass": "pass", "fail": "fail", "skip": "skip"}


def from_go(output, _directory):
    """`go test -json`. What a failed test printed is its detail."""
    outcomes, printed = {}, {}
    for line in output.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        test = event.get("Test")
        if not test:
            continue
        if event["Action"] == "output":
            printed.setdefault(test, []).append(event["Output"].strip())
        elif event["Action"] in GO_STATUS:
            status = GO_STATUS[event["Action"]]
            outcomes[test] = Outcome(status, " | ".join(printed.get(test, []))[-1500:] if status == "fail" else "")
    for test, lines in printed.items():
        outcomes.setdefault(test, Outcome("fail", "no end: " + " | ".join(lines)[-1500:]))
    return outcomes


def from_junit(_output, directory):
    """`pytest --junitxml=junit.xml`."""
    outcomes = {}
    path = directory / "junit.xml"
    if not path.exists():
        return outcomes
    for case in ElementTree.parse(path).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        outcome = Outcome("pass")
        for child in case:
            if child.tag == "skipped":
                outcome = Outcome("skip", child.get("message", ""))
            elif child.tag in ("failure", "error"):
                outcome = Outcome("fail", child.get("message", "")[:1500])
        outcomes[name] = outcome
    return outcomes


UNITTEST = re.compile(r"^(\w+) \(([\w.]+)\).*?\.\.\. (.*)$")


def from_unittest(output, _directory):
    """`unittest` with verbosity 2, as Django's runner prints it; the docstring's line may stand between."""
    outcomes, name = {}, None
    for line in output.splitlines():
        begun = re.match(r"^(\w+) \(([\w.]+)\)", line)
        if begun:
            name = f"{begun[2]}"
        ended = re.search(r"\.\.\. (ok|FAIL|ERROR|skipped|expected failure|unexpected success)(.*)$", line)
        if ended and name:
            word = {"ok": "pass", "expected failure": "pass", "skipped": "skip"}.get(ended[1], "fail")
            outcomes[name] = Outcome(word, ended[2].strip() if word != "pass" else "")
            name = None
    for kind, test, text in re.findall(r"^=+\n(ERROR|FAIL): (.*?)\n-+\n(.*?)(?=^=+\n|^-+\nRan )", output, re.S | re.M):
        found = re.search(r"\(([\w.]+)\)", test)
        key = found[1] if found else test
        outcomes[key] = Outcome("fail", f"{kind}: {text.strip().splitlines()[-1][:600]}")
    return outcomes


def from_libtest(output, _directory):
    """`cargo test`: `test name ... ok`."""
    outcomes = {}
    for name, word in re.findall(r"^test (\S+)(?: - should panic)? \.\.\. (ok|FAILED|ignored)", output, re.M):
        outcomes[name] = Outcome({"ok": "pass", "FAILED": "fail", "ignored": "skip"}[word])
    for name, text in re.findall(r"^---- (\S+) stdout ----\n(.*?)(?=^---- |^failures:)", output, re.S | re.M):
        outcomes[name] = Outcome("fail", text.strip()[:1500])
    return outcomes
