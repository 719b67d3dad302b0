"""Measures for how long some task on this machine was ready to run but had no processor, by the kernel's count (PSI)."""
import bisect
import contextlib
import threading
import time

from servers import now_ns

STEP_S = 0.02
PRESSURE = "/proc/pressure/cpu"  # "some avg10=0.00 avg60=0.00 avg300=0.00 total=1", in microseconds


class Standstill(threading.Thread):
    """A thread that samples the count until the process ends. On a kernel without PSI the measured time is 0."""

    def __init__(self):
        super().__init__(daemon=True)
        self.times, self.totals = [], []
        self.start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                with open(PRESSURE) as file:
                    self.totals.append(int(file.readline().split("total=")[1]))
                self.times.append(now_ns())
                time.sleep(STEP_S)

    def ms(self, begun, ended):
        """Returns for how many milliseconds between two times (now_ns) tasks waited for a processor."""
        return round(self.total(ended) - self.total(begun)) // 1000

    def total(self, time_ns):
        """Returns the kernel's count at this time, interpolated between two samples: this thread may also be late."""
        after = bisect.bisect_left(self.times, time_ns)
        if after == len(self.times) or after == 0:
            return self.totals[after - 1] if after else 0
        share = (time_ns - self.times[after - 1]) / (self.times[after] - self.times[after - 1])
        return self.totals[after - 1] + share * (self.totals[after] - self.totals[after - 1])
