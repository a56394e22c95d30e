"""Brings drivers from the package registries into the cache. Each function is quick when all is there already."""

import os
import pathlib
import shutil
import subprocess
import tarfile


class InstallFailed(Exception):
    """A registry's client ended badly; the text is the end of what it printed."""


class Installer:
    """Owns `${TIDEGATE_CACHE:-~/.cache/tidegate}/drivers`; writes nothing into the source tree."""

    def __init__(self, root):
        cache = pathlib.Path(os.environ.get("TIDEGATE_CACHE", pathlib.Path.home() / ".cache" / "tidegate"))
        self.root = root
        self.cache = cache / "drivers"
        self.cache.mkdir(parents=True, exist_ok=True)
        self.programs = root / "tests" / "drivers" / "programs"

    def run(self, *command, cwd=None, env=None):
        """Runs an installing command to its end."""
        done = subprocess.run([str(part) for part in command], cwd=cwd, env={**os.environ, **(env or {})}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        if done.returncode:
            tail = "\n".join(done.stdout.splitlines()[-12:])
            raise InstallFailed(f"{' '.join(map(str, command))}\n{tail}")
        return done.stdout

    def once(self, name, make):
        """`make(directory)` fills a new directory of this name, unless that was done before."""
        directory = self.cache / name
        mark = directory / ".complete"
        if not mark.exists():
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
            make(directory)
            mark.touch()
        return directory

    def apt(self, *packages):
        """Debian packages; needs root or sudo when one is missing."""
        query = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Status}\n", *packages], capture_output=True, text=True)
        have = {line.split()[0] for line in query.stdout.splitlines() if line.endswith("install ok installed")}
        missing = [package for package in packages if package not in have]
        if not missing:
            return
        root = [] if os.getuid() == 0 else ["sudo"]
        self.run(*root, "apt-get", "-q", "-o", "DPkg::Lock::Timeout=300", "update")
        self.run(*root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=300",
                 "install", "--no-install-recommends", *missing)

    def venv(self, *packages):
        """The python of a virtual environment with these packages."""
        python = self.cache / "venv" / "bin" / "python"
        if not python.exists():
            self.apt("python3-venv")
            self.run("/usr/bin/python3", "-m", "venv", python.parent.parent)
        have = self.run(python, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check").lower()
        names = {line.split("==")[0].replace("_", "-") for line in have.splitlines()}
        missing = [p for p in packages if p.split("==")[0].split("[")[0].lower().replace("_", "-") not in names]
        if missing:
            self.run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *missing)
        return python

    def sdist(self, requirement):
        """The unpacked source distribution of a Python package."""

        def make(directory):
            python = self.venv()
            self.run(python, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", requirement.split("==")[0], "-d", directory, requirement)
            (archive,) = [path for path in directory.iterdir() if path.suffix in (".gz", ".zip")]
            with tarfile.open(archive) as tar:
                tar.extractall(directory / "source")

        (source,) = (self.once("sdist-" + requirement.replace("==", "-"), make) / "source").iterdir()
        return source

    def npm(self, *packages):
        """A directory whose `node_modules` holds these packages and this project's own programs."""

        def make(directory):
            (directory / "package.json").write_text('{"private": true, "type": "module"}\n')
            self.run("npm", "install", "--silent", "--no-fund", "--no-audit", *packages, cwd=directory)

        directory = self.once("npm-" + "-".join(packages), make)
        # Modules are looked for beside the program, so it is copied.
        for program in (self.programs / "node").iterdir():
            shutil.copy(program, directory)
        return directory

    def maven(self, artifact):
        """The jar of an artifact `group:name:version`, alone."""
        self.apt("maven")
        name = "maven-" + artifact.replace(":", "-")

        def make(directory):
            self.run("mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={directory}")

        return next(self.once(name, make).glob("*.jar"))

    def java(self, jar, *programs):
        """Compiled Java programs of this project, which use this driver."""
        classes = self.cache / f"java-classes-{jar.stem}"
        classes.mkdir(exist_ok=True)
        self.run("javac", "-nowarn", "-cp", jar, "-d", classes, *(self.programs / "java" / program for program in programs))
        return classes

    def go_module(self, path, version):
        """A writable copy of a Go module, its tests included."""

        def make(directory):
            (directory / "empty").mkdir()
            told = self.run("go", "mod", "download", "-json", f"{path}@{version}", cwd=directory / "empty", env={"GOFLAGS": "-mod=mod"})
            source = next(line.split('"')[3] for line in told.splitlines() if '"Dir"' in line)
            shutil.copytree(source, directory / "source", copy_function=shutil.copy)
            self.run("chmod", "-R", "u+w", directory / "source")

        return self.once(f"go-{path.replace('/', '-')}-{version}", make) / "source"

    def go_tests(self, path, version):
        """The module's tests as one program, and the directory it is to run in."""
        source = self.go_module(path, version)
        program = source.parent / "tests"
        if not program.exists():
            self.run("go", "test", "-c", "-o", program, ".", cwd=source)
        return program, source

    def go_program(self, name, *modules):
        """A program of this project, built with the given modules."""
        directory = self.cache / f"go-program-{name}"
        directory.mkdir(exist_ok=True)
        source = self.programs / "go" / f"{name}.go"
        program = directory / name
        if program.exists() and program.stat().st_mtime > source.stat().st_mtime:
            return program
        shutil.copy(source, directory / "main.go")
        if not (directory / "go.mod").exists():
            self.run("go", "mod", "init", f"drivers/{name}", cwd=directory)
        self.run("go", "get", *modules, cwd=directory)
        self.run("go", "build", "-o", program, ".", cwd=directory)
        return program

    def cargo(self, name):
        """A Rust program of this project that stands outside the workspace."""
        target = self.cache / f"cargo-{name}"
        manifest = self.root / "tests" / "drivers" / name / "Cargo.toml"
        self.run("cargo", "build", "--quiet", "--locked", "--manifest-path", manifest, "--target-dir", target)
        return target / "debug" / name
