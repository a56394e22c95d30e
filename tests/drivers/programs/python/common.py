"""What all Python programs share: addresses from the environment, one line of JSON a test, a clock on each test.

A test gives back what it saw. The harness compares that between the direct run and the run through the proxy, so a test
may give back anything that the server alone decides, and nothing that differs from run to run.
"""

import hashlib
import json
import os
import pathlib
import signal
import sys
import tempfile
import traceback

HOST = os.environ["DRIVERS_HOST"]
PORT = int(os.environ["DRIVERS_PORT"])
USER = os.environ["DRIVERS_USER"]
PASSWORD = os.environ["DRIVERS_PASSWORD"]
DATABASE = os.environ["DRIVERS_DATABASE"]
FLAVOR = os.environ["DRIVERS_FLAVOR"]
SQL = pathlib.Path(os.environ["DRIVERS_SQL"])
#: Seconds that one test may take.
LIMIT = 40

TYPES = [text.strip() for text in (SQL / "types.sql").read_text().split(";\n") if text.strip()]
PROCEDURE = (SQL / "procedure.sql").read_text()


class Skip(Exception):
    """The driver cannot do this."""


def say(test, status, detail=""):
    """Reports one test's end."""
    print("@@ " + json.dumps({"test": test, "status": status, "detail": detail}), flush=True)


def seen(value):
    """A value as text, short enough to print."""
    text = repr(value)
    return text if len(text) < 4000 else f"{text[:200]}... sha256 {hashlib.sha256(text.encode()).hexdigest()}"


def on_alarm(*_):
    raise TimeoutError(f"no end after {LIMIT} s")


def run(tests):
    """Runs (name, function) pairs; names on the command line choose among them."""
    signal.signal(signal.SIGALRM, on_alarm)
    for name, test in tests:
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        signal.alarm(LIMIT)
        try:
            say(name, "pass", seen(test()))
        except Skip as reason:
            say(name, "skip", str(reason))
        except BaseException as error:  # a driver may raise anything, and so does the clock
            if isinstance(error, KeyboardInterrupt):
                raise
            where = traceback.extract_tb(error.__traceback__)[-1]
            last = [f for f in traceback.extract_tb(error.__traceback__) if "programs" in f.filename][-1:]
            line = last[0].lineno if last else where.lineno
            say(name, "fail", f"{type(error).__name__}: {error} (line {line})")
        finally:
            signal.alarm(0)


def temporary_file(text):
    """A file with this text, for LOAD DATA LOCAL."""
    with tempfile.NamedTemporaryFile("w", suffix=".csv", delete=False) as file:
        file.write(text)
    return file.name
