"""The table of drivers: how each is installed, run and read. A new driver is one entry in `DRIVERS`."""

import dataclasses
import os
from typing import Callable

from . import outcome


@dataclasses.dataclass
class Context:
    """What a driver's `prepare` may use to say what is to be run."""

    install: object
    host: str
    port: int
    flavor: str
    directory: object

    def program(self, kind, name):
        """One of this project's programs."""
        return str(self.install.programs / kind / name)


@dataclasses.dataclass
class Run:
    """One run of a program."""

    command: list
    env: dict = dataclasses.field(default_factory=dict)
    cwd: object = None


@dataclasses.dataclass
class Driver:
    """`prepare(context)` installs what is missing and gives the run; `read` turns its output into outcomes."""

    name: str
    prepare: Callable
    read: Callable = outcome.from_lines
    quick: bool = False
    limit_s: int = 240
    servers: tuple = ("mariadb", "mysql")


def python(program, *packages, **env):
    """A program of this project with packages from PyPI."""

    def prepare(context):
        interpreter = context.install.venv(*packages)
        return Run([interpreter, context.program("python", program)], env)

    return prepare


def mysqlclient(context):
    context.install.apt("build-essential", "pkg-config", "python3-dev", "libmariadb-dev")
    return python("mysqlclient_program.py", "mysqlclient")(context)


def cli(program):
    """A program of this project that drives command line clients; Python without packages."""

    def prepare(context):
        mysql = context.install.cache.parent / "mysql" / "root"
        root = os.environ.get("TIDEGATE_MYSQL_ROOT", str(mysql))
        return Run(["/usr/bin/python3", context.program("cli", program)], {"DRIVERS_MYSQL_ROOT": root})

    return prepare


GO_DRIVER = ("github.com/go-sql-driver/mysql", "v1.10.1")


def go_suite(context):
    tests, source = context.install.go_tests(*GO_DRIVER)
    env = {
        "MYSQL_TEST_USER": "root", "MYSQL_TEST_PASS": "", "MYSQL_TEST_PROT": "tcp", "MYSQL_TEST_DBNAME": "test",
        "MYSQL_TEST_ADDR": f"{context.host}:{context.port}", "MYSQL_TEST_CONCURRENT": "1",
    }
    # That one test connects to an address on the internet.
    return Run(["go", "tool", "test2json", "-t", tests, "-test.v", "-test.timeout=280s", "-test.skip=^TestConnectorReturnsTimeout$"], env, source)


def go_program(context):
    return Run([context.install.go_program("gomysql", "@".join(GO_DRIVER))])


def node(program, *packages):
    def prepare(context):
        directory = context.install.npm(*packages)
        return Run(["node", str(directory / program)], cwd=directory)

    return prepare


def java(program, main, artifact):
    def prepare(context):
        jar = context.install.maven(artifact)
        classes = context.install.java(jar, "Program.java", program)
        return Run(["java", "-Xmx1g", "-cp", f"{classes}:{jar}", main])

    return prepare


def debian(command, kind, program, *packages):
    """A program in a language whose driver is Debian's."""

    def prepare(context):
        context.install.apt(*packages)
        return Run([*command, context.program(kind, program)])

    return prepare


def sqlx(context):
    return Run([context.install.cargo("sqlx")])


SQLALCHEMY = "SQLAlchemy==2.0.36"


def sqlalchemy_suite(context):
    """SQLAlchemy's own tests of its MySQL dialect and its dialect suite, over PyMySQL."""
    source = context.install.sdist(SQLALCHEMY)
    python = context.install.venv("pytest", "PyMySQL", "cryptography", SQLALCHEMY, "greenlet")
    url = f"mysql+pymysql://root@{context.host}:{context.port}/test?charset=utf8mb4"
    return Run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--maxfail=10000", f"--dburi={url}",
                f"--junitxml={context.directory}/junit.xml", "test/dialect/mysql", "test/dialect/test_suite.py"],
               cwd=source)


DJANGO = "Django==5.2.19"
DJANGO_TESTS = ("backends", "transactions", "transaction_hooks", "basic", "bulk_create", "select_for_update", "get_or_create", "datatypes",
                "dates", "datetimes", "aggregation", "introspection", "update", "delete", "queries", "model_fields", "raw_query", "schema")
DJANGO_SETTINGS = """
DATABASES = {{
    name: {{"ENGINE": "django.db.backends.mysql", "NAME": "dj", "USER": "root", "PASSWORD": "", "HOST": "{host}", "PORT": {port},
            "TEST": {{"NAME": "test_" + name, "CHARSET": "utf8mb4"}}}}
    for name in ("default", "other")
}}
SECRET_KEY = "for tests only"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False
"""


def django_suite(context):
    """A part of Django's own tests, over mysqlclient."""
    source = context.install.sdist(DJANGO)
    context.install.apt("build-essential", "pkg-config", "python3-dev", "libmariadb-dev")
    python = context.install.venv("mysqlclient", DJANGO)
    (context.directory / "tidegate_settings.py").write_text(DJANGO_SETTINGS.format(host=context.host, port=context.port))
    return Run([python, "runtests.py", "--settings=tidegate_settings", "--parallel=1", "-v2", "--noinput", *DJANGO_TESTS],
               {"PYTHONPATH": str(context.directory)}, source / "tests")


DRIVERS = [
    Driver("mariadb", cli("mariadb_client.py"), quick=True),
    # It has no mysql_native_password any more, so it cannot log in to MariaDB.
    Driver("mysql", cli("mysql_client.py"), servers=("mysql",)),
    Driver("dump", cli("dump.py"), quick=True, limit_s=300),
    Driver("pymysql", python("pymysql_program.py", "PyMySQL", "cryptography", "PyNaCl"), quick=True),
    Driver("go", go_program, quick=True),
    Driver("go-suite", go_suite, outcome.from_go, limit_s=300),
    Driver("mysqlclient", mysqlclient),
    Driver("connector-python", python("connector_program.py", "mysql-connector-python")),
    Driver("aiomysql", python("aiomysql_program.py", "aiomysql", "PyMySQL", "cryptography")),
    Driver("mysql2", node("mysql2_program.mjs", "mysql2")),
    Driver("mariadb-node", node("mariadb_program.mjs", "mariadb")),
    Driver("mariadb-java", java("MariadbProgram.java", "MariadbProgram", "org.mariadb.jdbc:mariadb-java-client:3.5.6")),
    Driver("mysql-java", java("MysqlProgram.java", "MysqlProgram", "com.mysql:mysql-connector-j:9.4.0")),
    Driver("sqlx", sqlx),
    Driver("php", debian(["php", "-d", "mysqli.allow_local_infile=On"], "php", "program.php", "php-cli", "php-mysql")),
    Driver("perl", debian(["perl"], "perl", "program.pl", "libdbd-mysql-perl", "libdbi-perl")),
    Driver("ruby", debian(["ruby"], "ruby", "program.rb", "ruby", "ruby-mysql2")),
    Driver("sqlalchemy-suite", sqlalchemy_suite, outcome.from_junit, limit_s=900),
    Driver("django-suite", django_suite, outcome.from_unittest, limit_s=900),
]
