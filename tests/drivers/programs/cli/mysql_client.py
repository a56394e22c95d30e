"""MySQL's own `mysql` client."""

from client import run, address, mysql_program, shell
from sessions import tests

MYSQL = mysql_program("mysql")


def tls(mode):
    def test():
        code, out, err = shell([*MYSQL, *address(), f"--ssl-mode={mode}", "test"], "SELECT 'here';")
        assert code == 0, err
        return out

    return test


def algorithms(names):
    def test():
        code, out, err = shell([*MYSQL, *address(), f"--compression-algorithms={names}", "test"], "SELECT REPEAT('abc', 50000);")
        assert code == 0, err
        return len(out)

    return test


def attributes():
    code, out, err = shell([*MYSQL, *address(), "test"], "query_attributes n1 v1 n2 v2\nSELECT 'with attributes';\nSELECT 'without';")
    return code, out, err


run(tests(MYSQL) + [
    ("tls", tls("REQUIRED")), ("no_tls", tls("DISABLED")), ("zlib", algorithms("zlib")), ("zstd", algorithms("zstd")), ("query_attributes", attributes),
])
