"""The proxy of the fault suite (relay_main.c)."""
import subprocess


class Relay:
    """A proxy in front of one server."""

    def __init__(self, program, server_port):
        self.process = subprocess.Popen([program, str(server_port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.port = int(self.process.stdout.readline())

    def tell(self, word):
        self.process.stdin.write(word.encode() + b"\n")
        self.process.stdin.flush()

    def lost(self):
        self.tell("lost")
        return int(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait()
