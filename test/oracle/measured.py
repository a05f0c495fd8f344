"""Runs the command and measures what it takes.

Linux counts the memory of the process that starts another into the other's
peak, and a test process is large. So a small process, this file run as a
script, starts the command for it.
"""
import atexit
import functools
import json
import os
import signal
import subprocess
import sys
import time


PER_MIB = 1 << 20 if sys.platform == "darwin" else 1 << 10  # of ru_maxrss


class Run:
    """One finished run: its status, negative where a signal ended it, as it does after timeout seconds; seconds of processor time."""

    def __init__(self, command, stderr, timeout=60):
        starter = _starter()
        starter.stdin.write(json.dumps([[os.fspath(c) for c in command], os.fspath(stderr), timeout]) + "\n")
        starter.stdin.flush()
        self.status, self.seconds, self.mib = json.loads(starter.stdout.readline())
        with open(stderr, errors="replace") as f:
            self.stderr = f.read()


@functools.cache
def _starter():
    p = subprocess.Popen([sys.executable, "-I", "-S", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(p.stdin.close)
    return p


def run(command, stderr, timeout):
    """(status, seconds of processor time, peak MiB)"""
    with open(stderr, "wb") as err:
        start = time.monotonic()
        p = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err)
        while True:
            pid, status, usage = os.wait4(p.pid, os.WNOHANG)
            if pid:
                p.returncode = os.waitstatus_to_exitcode(status)
                return p.returncode, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / PER_MIB
            if time.monotonic() - start > timeout:
                os.kill(p.pid, signal.SIGKILL)
            time.sleep(0.0005)


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(run(*json.loads(line))), flush=True)
