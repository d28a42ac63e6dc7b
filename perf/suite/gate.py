"""Lets one program at a time measure, while the next ones import what they need.

Most of a short workload is imports and the building of a model, which need no GPU. Those of the next few programs
are therefore done while another one measures. A prepared program waits at its gate, a FIFO named in SUITE_GATE, which
`report.Report.gate` reads to its end; that comes when this side opens it for writing and closes it. From then until the
program has ended, whatever became of it, nobody else's gate is opened.
"""

import collections
import errno
import os
import signal
import subprocess
import time

POLL_S = 0.0005


def one_at_a_time(tasks, start, ahead):
    """Yields each task with its result, in the order given.

    `start(task)` begins to prepare and returns what has `take_turn()`, which runs alone and returns the result, and
    `abandon()`. So many as `ahead` are prepared beside the one whose turn it is. Tasks are asked for as late as that
    allows, so an iterator may end the list when the time is used up.
    """
    tasks, waiting = iter(tasks), collections.deque()
    try:
        while True:
            while len(waiting) <= ahead and (task := next(tasks, None)) is not None:
                waiting.append((task, start(task)))
            if not waiting:
                return
            task, prepared = waiting.popleft()
            try:
                result = prepared.take_turn()
            except BaseException:
                prepared.abandon()
                raise
            yield task, result
    finally:
        for _, prepared in waiting:
            prepared.abandon()


class Gate:
    """The gate of one program."""

    def __init__(self, path):
        self.path, self.held = path, None
        os.mkfifo(path)

    def wait(self, process, timeout_s):
        """Waits until the program stands at the gate. False if it ended first or did not come in time."""
        deadline = time.monotonic() + timeout_s
        while self.held is None:
            try:
                # While this end is held the program's read goes on; it sees the end of the file once it is closed.
                self.held = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                if process.poll() is not None or time.monotonic() > deadline:
                    return False
                time.sleep(POLL_S)
        return True

    def open(self):
        os.close(self.held)
        self.held = None


def end(process, grace_s=5):
    """Ends a process that is the first of its session. Asked first, so that orion-run can end what it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(grace_s)
            break
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
    process.wait()


def sweep(process):
    """Kills what a program that has ended left behind in its session, such as helpers that compile or load data."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
