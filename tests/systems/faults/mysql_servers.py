"""MySQL and MariaDB in the fault suite."""
import contextlib
import ctypes

from servers import Server


class Maria:
    """A connection to MySQL or MariaDB through libmariadb, which the backend also uses: the packages that the tests
    need do not include the command-line client."""
    TIMEOUTS_S = {0: 5, 11: 5, 12: 5}  # the options for the connect, read and write timeouts

    def __init__(self, port):
        self.library = ctypes.CDLL("libmariadb.so.3")
        for word in ("init", "real_connect", "store_result"):
            getattr(self.library, "mysql_" + word).restype = ctypes.c_void_p
        self.library.mysql_fetch_row.restype = ctypes.POINTER(ctypes.c_char_p)
        self.handle = ctypes.c_void_p(self.library.mysql_init(None))
        for option, seconds in self.TIMEOUTS_S.items():
            self.library.mysql_options(self.handle, option, ctypes.byref(ctypes.c_uint(seconds)))
        if not self.library.mysql_real_connect(self.handle, b"127.0.0.1", b"admin", b"secret", None, port, None, ctypes.c_ulong(0)):
            self.close()
            raise ConnectionError("no connection to MySQL")

    def sql(self, text):
        """Returns the first column of each row, or None after an error."""
        if self.library.mysql_query(self.handle, text.encode()):
            return None
        result = ctypes.c_void_p(self.library.mysql_store_result(self.handle))
        if not result:
            return []
        column = []
        while row := self.library.mysql_fetch_row(result):
            column.append(row[0].decode())
        self.library.mysql_free_result(result)
        return column

    def close(self):
        self.library.mysql_close(self.handle)


class Mysql(Server):
    script = "mysql"
    uri = "mysql://dlock:secret@127.0.0.1:{port}/locks?"
    on_disk = "mysql", 300 << 10

    def answers(self):
        with contextlib.closing(Maria(self.port)) as maria:
            return maria.sql("SELECT 1") == ["1"]

    def sessions(self, maria):
        return maria.sql("SELECT id FROM information_schema.processlist WHERE user = 'dlock'")

    def end_sessions(self):
        with contextlib.closing(Maria(self.port)) as maria:
            for session in self.sessions(maria):
                maria.sql("KILL " + session)


class MysqlSession(Mysql):
    uri = "mysql://dlock:secret@127.0.0.1:{port}/sessions?mode=session&"
    ends_unheard = True

    def held(self, run):
        """Session mode cannot list locks. Returns the ids of the clients' sessions instead: without a session there is no
        lock."""
        with contextlib.closing(Maria(self.port)) as maria:
            return self.sessions(maria)
