"""The `mariadb` command line client of this machine."""

from client import run, address, shell
from sessions import tests


def over_tls():
    command = ["mariadb", *address(), "--ssl", "--skip-ssl-verify-server-cert", "test"]
    code, out, err = shell(command, "SELECT 'over TLS';\nSTATUS;\n")
    assert code == 0, err
    return [line for line in out.splitlines() if "over TLS" in line or line.startswith("SSL") and "Not in use" in line]


run(tests(["mariadb"]) + [("tls", over_tls)])
