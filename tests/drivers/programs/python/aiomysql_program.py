"""aiomysql: the same tests, each call driven to its end on one event loop; then its own pool with many tasks."""

import asyncio
import ssl
from inspect import isawaitable

import aiomysql
import aiomysql.cursors
import dbapi
from common import DATABASE, HOST, PASSWORD, PORT, USER, Skip, run
from pymysql.constants import CLIENT
from pymysql.err import MySQLError

LOOP = asyncio.new_event_loop()


class Wait:
    """An object whose coroutine methods are waited for."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        value = getattr(self.inner, name)
        if not callable(value):
            return value

        def call(*args, **kwargs):
            result = value(*args, **kwargs)
            return LOOP.run_until_complete(self.settle(result)) if isawaitable(result) else result

        return call

    async def settle(self, result):
        return await result

    def cursor(self, *args):
        return Wait(LOOP.run_until_complete(self.settle(self.inner.cursor(*args))))


class Aiomysql(dbapi.Driver):
    error = MySQLError

    def connect(self, tls=False, compress=False, local_infile=False, multi=False, database=DATABASE, autocommit=False, password=PASSWORD):
        if compress:
            raise Skip("no compression in this driver")
        context = None
        if tls:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        connecting = aiomysql.connect(
            host=HOST, port=PORT, user=USER, password=password, db=database, charset="utf8mb4", ssl=context, local_infile=local_infile,
            client_flag=CLIENT.MULTI_STATEMENTS if multi else 0, autocommit=autocommit)

        async def connect():
            return await connecting

        return Wait(LOOP.run_until_complete(connect()))

    def streaming(self, connection):
        return connection.cursor(aiomysql.cursors.SSCursor)


async def many_tasks():
    """Forty tasks on a pool of twenty connections: each reads its own writes, in its own transaction."""
    pool = await aiomysql.create_pool(host=HOST, port=PORT, user=USER, password=PASSWORD, db=DATABASE, minsize=1, maxsize=20, autocommit=False)
    async with pool.acquire() as connection, connection.cursor() as cursor:
        await cursor.execute("DROP TABLE IF EXISTS tasks")
        await cursor.execute("CREATE TABLE tasks (task INT, n INT)")
        await connection.commit()

    async def task(number):
        for n in range(10):
            async with pool.acquire() as connection, connection.cursor() as cursor:
                await cursor.execute("INSERT INTO tasks VALUES (%s, %s)", (number, n))
                await cursor.execute("SELECT COUNT(*) FROM tasks WHERE task = %s", (number,))
                assert (await cursor.fetchone())[0] == n + 1
                await connection.commit()

    await asyncio.gather(*(task(number) for number in range(40)))
    async with pool.acquire() as connection, connection.cursor() as cursor:
        await cursor.execute("SELECT COUNT(*), SUM(n) FROM tasks")
        answer = await cursor.fetchone()
    pool.close()
    await pool.wait_closed()
    return answer


run(dbapi.Suite(Aiomysql()).tests() + [("pool_many_tasks", lambda: LOOP.run_until_complete(many_tasks()))])
