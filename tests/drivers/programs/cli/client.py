"""What the programs that drive command line clients share."""

import json
import os
import pathlib
import subprocess

HOST = os.environ["DRIVERS_HOST"]
PORT = os.environ["DRIVERS_PORT"]
FLAVOR = os.environ["DRIVERS_FLAVOR"]
SQL = pathlib.Path(os.environ["DRIVERS_SQL"])
SCRATCH = pathlib.Path(os.environ["DRIVERS_SCRATCH"])
LIMIT = 120


def say(test, status, detail=""):
    print("@@ " + json.dumps({"test": test, "status": status, "detail": detail}), flush=True)


def mysql_program(name):
    """The command of a program of MySQL's own, unpacked with the loader and the libraries that it was built for."""
    root = pathlib.Path(os.environ["DRIVERS_MYSQL_ROOT"])
    libraries = next((root / "usr" / "lib").glob("*-linux-gnu"))
    loader = next(libraries.glob("ld-linux-*.so.*"))
    return [str(loader), "--library-path", str(libraries), str(root / "usr" / "bin" / name)]


def address(user="root", password=""):
    """Options of every client; none of the machine's own option files is read."""
    return ["--no-defaults", f"-h{HOST}", f"-P{PORT}", "--protocol=tcp", f"-u{user}", *([f"--password={password}"] if password else ["--skip-password"])]


def shell(command, text="", limit=LIMIT):
    """Exit code, standard output and standard error of a command that is given `text`."""
    done = subprocess.run(command, input=text.encode() if isinstance(text, str) else text, capture_output=True, timeout=limit)
    return done.returncode, done.stdout.decode(errors="backslashreplace"), done.stderr.decode(errors="backslashreplace")


def run(tests):
    """Runs (name, function) pairs; a function gives back what it saw."""
    for name, test in tests:
        try:
            text = repr(test())
            say(name, "pass", text if len(text) < 6000 else text[:6000])
        except Exception as error:
            say(name, "fail", f"{type(error).__name__}: {error}")
