"""A database server with Tidegate before it, from the lab's own program."""

import json
import os
import pathlib
import subprocess


class LabFailed(Exception):
    """The server or Tidegate did not start."""


class Lab:
    """`lab serve` as long as the `with` block lasts. `target(tidegate)` gives an address."""

    def __init__(self, root, flavor, options, tidegate=True):
        program = pathlib.Path(os.environ.get("TIDEGATE_LAB", root / "target" / "debug" / "lab"))
        self.command = [str(program), "serve", "--flavor", flavor, *options]
        if tidegate:
            self.command.append("--tidegate")
        self.flavor = flavor
        self.process = None
        self.facts = {}

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise LabFailed(self.process.communicate()[1].strip())
        self.facts = json.loads(line)
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def target(self, tidegate):
        """Host and port of the server, or of Tidegate."""
        place = self.facts["tidegate"] if tidegate else self.facts
        return place["host"], place["port"]

    def fresh_database(self):
        """Empty databases `test` and `test_schema`, made without Tidegate; everything else that runs left behind is dropped too."""
        # SQLAlchemy's tests want a second one.
        self.start_over([f"CREATE DATABASE {name} CHARACTER SET utf8mb4" for name in ("test", "test_schema")])

    def start_over(self, statements):
        """Drops all databases that are not the server's own, then runs statements."""
        names = self.sql(
            "SELECT schema_name FROM information_schema.schemata WHERE schema_name NOT IN "
            "('mysql', 'information_schema', 'performance_schema', 'sys')"
        ).splitlines()
        drops = [f"DROP DATABASE `{name.replace('`', '``')}`" for name in names]
        self.sql("; ".join(["SET foreign_key_checks=0", *drops, *statements]))

    def sql(self, statements):
        """Runs statements as root on the server itself; gives back the text of the answer."""
        command = ["mariadb", "--no-defaults", "-uroot", f"-S{self.facts['socket']}", "-N", "-B", "-e", statements]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

    def tidegate_alive(self):
        """Whether the proxy's process is still there."""
        return pathlib.Path(f"/proc/{self.facts['tidegate']['pid']}").exists()

    def tidegate_log(self):
        """The end of what Tidegate logged."""
        try:
            text = (pathlib.Path(self.facts["tidegate"]["dir"]) / "log").read_text(errors="replace")
        except OSError as error:
            return str(error)
        return "\n".join(text.splitlines()[-15:])
