"""The command line: chooses drivers and servers, runs each twice, prints a table and writes JSON."""

import argparse
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

from .compare import Comparison, compare, load_expected
from .drivers import DRIVERS, Context
from .install import InstallFailed, Installer
from .lab import Lab, LabFailed


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/drivers", description="MySQL drivers, direct and through Tidegate, test by test.")
    parser.add_argument("--server", choices=("mariadb", "mysql", "both"), default="both")
    parser.add_argument("--only", action="append", metavar="NAME", help="only this driver; may be given again")
    parser.add_argument("--quick", action="store_true", help="a few drivers at MariaDB: for every test run")
    parser.add_argument("--direct", action="store_true", help="only the direct runs (tests of the tests)")
    parser.add_argument("--json", metavar="FILE", help="write all results there")
    parser.add_argument("--keep", metavar="DIRECTORY", help="keep the programs' output there")
    parser.add_argument("--backends", default="4", help="connections that Tidegate may have (default 4)")
    parser.add_argument("--threads", default="1", help="Tidegate's threads (default 1)")
    parser.add_argument("--variable", action="append", default=[], metavar="NAME=VALUE", help="a variable of Tidegate's; may be given again")
    parser.add_argument("--list", action="store_true", help="list the drivers")
    return parser.parse_args()


def chosen(args):
    """The drivers to run."""
    names = [driver.name for driver in DRIVERS]
    for name in args.only or []:
        if name not in names:
            raise SystemExit(f"no driver {name}; there are: {' '.join(names)}")
    if args.only:
        return [driver for driver in DRIVERS if driver.name in args.only]
    return [driver for driver in DRIVERS if driver.quick or not args.quick]


def servers(args):
    """The servers to run at."""
    if args.quick and args.server == "both":
        return ["mariadb"]
    return ["mariadb", "mysql"] if args.server == "both" else [args.server]


def execute(run, context, limit_s):
    """Runs a program; gives its output and, when it did not end in time, the trouble."""
    host, port = context.host, context.port
    env = {
        **os.environ, "DRIVERS_HOST": host, "DRIVERS_PORT": str(port), "DRIVERS_USER": "root", "DRIVERS_PASSWORD": "",
        "DRIVERS_DATABASE": "test", "DRIVERS_FLAVOR": context.flavor, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0",
        "PYTHONWARNINGS": "ignore",
        "DRIVERS_SQL": str(context.install.programs.parent / "sql"), "DRIVERS_SCRATCH": str(context.directory), **run.env,
    }
    log = context.directory / "output"
    with open(log, "wb") as sink:
        process = subprocess.Popen([str(part) for part in run.command], env=env, cwd=run.cwd or context.directory, stdin=subprocess.DEVNULL,
                                   stdout=sink, stderr=subprocess.STDOUT, start_new_session=True)
        trouble = ""
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            trouble = f"no end after {limit_s} s"
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return log.read_text(errors="replace"), trouble


def one_run(driver, lab, install, keep, tidegate):
    """One run of one driver: outcomes, seconds, trouble."""
    way = "tidegate" if tidegate else "direct"
    directory = keep / f"{driver.name}-{lab.flavor}-{way}"
    directory.mkdir(parents=True, exist_ok=True)
    host, port = lab.target(tidegate)
    context = Context(install, host, port, lab.flavor, directory)
    run = driver.prepare(context)
    lab.fresh_database()
    start = time.monotonic()
    output, trouble = execute(run, context, driver.limit_s)
    seconds = time.monotonic() - start
    outcomes = driver.read(output, directory)
    if not outcomes:
        trouble = f"{way}: no test ran; {trouble} " + " | ".join(output.splitlines()[-6:])[-800:]
    elif trouble:
        trouble = f"{way}: {trouble}"
    return outcomes, seconds, trouble


def both_runs(driver, flavor, install, keep, args, expected):
    """The comparison for one driver at one server."""
    options = ["--backends", args.backends, "--threads", args.threads]
    for variable in args.variable:
        options += ["--variable", variable]
    try:
        with Lab(install.root, flavor, options, tidegate=not args.direct) as lab:
            direct, first_s, first_trouble = one_run(driver, lab, install, keep, False)
            if args.direct:
                result = compare(driver.name, flavor, direct, direct, {})
                result.trouble, result.seconds = first_trouble, (first_s, 0.0)
                return result
            proxied, second_s, second_trouble = one_run(driver, lab, install, keep, True)
            result = compare(driver.name, flavor, direct, proxied, expected)
            result.trouble = "; ".join(t for t in (first_trouble, second_trouble) if t)
            if not lab.tidegate_alive():
                result.trouble += "; Tidegate ended: " + lab.tidegate_log()
            (keep / f"{driver.name}-{flavor}-tidegate" / "log").write_text(lab.tidegate_log())
            result.seconds = (first_s, second_s)
            return result
    except (InstallFailed, LabFailed, subprocess.SubprocessError) as error:
        return Comparison(driver.name, flavor, trouble=f"{type(error).__name__}: {error}")


#: Tests that fail direct as well, printed for each driver.
SHOWN = 8
LINE = "{:<18} {:<8} {:>6} {:>7} {:>7} {:>7} {:>9} {:>9}  {:>6} {:>6}"


def print_line(result):
    print(LINE.format(result.driver, result.server, result.tests, result.passed_direct, len(result.fails_direct), result.skipped,
                      len(result.expected), len(result.only_tidegate), f"{result.seconds[0]:.1f}", f"{result.seconds[1]:.1f}"), flush=True)
    if result.trouble:
        print("    trouble: " + result.trouble.replace("\n", "\n    "), flush=True)


def print_details(results):
    """Each difference; then, in short, what fails direct as well."""
    for result in results:
        for entry in result.only_tidegate:
            print(f"\nONLY THROUGH TIDEGATE: {result.driver} at {result.server}: {entry['test']}")
            for way in ("direct", "tidegate"):
                if way in entry:
                    print(f"    {way}: {entry[way]}")
    for result in results:
        for entry in result.expected:
            print(f"known difference: {result.driver} at {result.server}: {entry['test']}: {entry['reason']}")
    failing = [(result, entry) for result in results for entry in result.fails_direct[:SHOWN]]
    if failing:
        print("\nfails direct as well:")
    for result, entry in failing:
        print(f"    {result.driver} at {result.server}: {entry['test']}: {' '.join(entry['detail'].split())[:140]}")
    for result in results:
        if len(result.fails_direct) > SHOWN:
            print(f"    {result.driver} at {result.server}: and {len(result.fails_direct) - SHOWN} more (--json has all)")


def main(root):
    """The whole run; gives the exit code."""
    args = arguments()
    if args.list:
        print("\n".join(driver.name + (" (quick)" if driver.quick else "") for driver in DRIVERS))
        return 0
    keep = pathlib.Path(args.keep or tempfile.mkdtemp(prefix="tidegate-drivers-")).resolve()
    install = Installer(root)
    expected = load_expected(root / "tests" / "drivers" / "expected.json")
    print(LINE.format("driver", "server", "tests", "pass", "fail", "skip", "known", "only-tg", "direct", "tg s"), flush=True)
    results = []
    for flavor in servers(args):
        for driver in chosen(args):
            if flavor in driver.servers:
                results.append(both_runs(driver, flavor, install, keep, args, expected))
                print_line(results[-1])
    print_details(results)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps([dataclasses.asdict(result) for result in results], indent=1) + "\n")
    print(f"\noutput of all programs: {keep}")
    bad = sum(result.bad() for result in results)
    print(f"{len(results) - bad} passed, {bad} failed")
    return 1 if bad else 0
