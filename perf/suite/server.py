"""An oriond for one measured run, so that nothing of another run's server is on the GPU meanwhile."""

import atexit
import functools
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import run

FOLDERS = (
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/wsl/lib",
    "/usr/lib",
)
WARM_S_MAX = 20


class NoWorker(Exception):
    """The server of one run did not come up; that run has failed, and the others go on."""


class Server:
    """Its address is known from the start, so a program may be prepared with it long before it listens."""

    def __init__(self, oriond, driver, folder, *, listen="none", token_file=None, address=None, inside=()):
        """Listens on a socket in `folder`, or on the TCP address `listen`. `address` is for programs that reach it by
        another one, and `inside` is the command that runs it somewhere else, such as in a network namespace."""
        socket = Path(folder) / "oriond.sock" if listen == "none" else "none"
        self.address = address or (f"unix:{socket}" if listen == "none" else f"tcp:{listen}")
        self.command = [*inside, oriond, "serve", "--socket", socket, "--listen", listen, "--driver", driver]
        self.command += ["--warm", "0", "--prestart", "1"] + (["--token-file", token_file] if token_file else [])
        self.log = Path(folder) / "oriond.log"
        self.process = None

    def start(self):
        """Returns once a worker waits, warmed up, which is the only one there will be."""
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(part) for part in self.command], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + WARM_S_MAX
        while b"worker warm" not in self.log.read_bytes():
            if self.process.poll() is not None or time.monotonic() > deadline:
                said = self.log.read_text(errors="replace")
                self.stop()
                raise NoWorker(f"oriond has no worker: {said[-2000:]}")
            time.sleep(0.002)

    def stop(self):
        """Its workers are gone when it is."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None


def for_mode(mode, folder, options):
    oriond = run.orion_run(mode, options).with_name("oriond")
    if mode.startswith("shm"):
        return Server(oriond, options.driver, folder)
    return Server(oriond, options.driver, folder, listen=f"127.0.0.1:{free_port()}", token_file=own_token())


@functools.cache
def own_token():
    """The file with the token of every server that is started here, which the programs find in the environment."""
    folder = tempfile.mkdtemp(prefix="orion-token-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    token = write_token(Path(folder) / "token")
    os.environ.pop("ORION_TOKEN", None)
    os.environ["ORION_TOKEN_FILE"] = str(token)
    return token


def write_token(path):
    """A file that nobody else can read; oriond takes no other."""
    path.touch(0o600)
    path.write_text(secrets.token_hex(16))
    return path


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def find_driver():
    """NVIDIA's library and never Orion's own, where there is a GPU to go with it; else the software GPU."""
    if os.path.exists("/dev/nvidiactl"):
        listed = os.environ.get("LD_LIBRARY_PATH", "").split(":")
        for folder in [*filter(None, listed), *FOLDERS]:
            library = Path(folder) / "libcuda.so.1"
            if library.exists() and b"orion_shim_marker" not in library.read_bytes():
                return str(library.resolve())
    return "soft"
