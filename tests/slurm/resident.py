"""`lowvar` for many jobs on one machine: a process that has imported the libraries forks for each call.

``resident.py SOCKET`` answers; ``CALL`` is a command that asks, in a millisecond. A call of its own would spend seconds
to import JAX, which says nothing about Slurm.
"""

import contextlib
import importlib
import json
import os
import signal
import socket
import sys

CALL = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as line:
    line.connect({place!r})
    socket.send_fds(line, [json.dumps([os.getcwd(), sys.argv[1:]]).encode()], [1, 2])
    sys.exit(int(line.recv(8) or 1))
"""


def answer(line):
    """Does what a call asks for, in a process of its own."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    said, handles, *_ = socket.recv_fds(line, 2**16, 2)
    folder, words = json.loads(said)
    os.chdir(folder)
    for number, handle in enumerate(handles, start=1):
        os.dup2(handle, number)
    code = 1
    with contextlib.suppress(SystemExit):
        code = importlib.import_module("lowvar.cli").main(words)
    sys.stdout.flush()
    sys.stderr.flush()
    line.sendall(str(code).encode())


def main(place):
    """Answers until it is killed."""
    import commands

    for name in commands.IMPORTED:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that have answered
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(place)
        listening.listen(100)
        while True:
            line, _ = listening.accept()
            if os.fork() == 0:
                answer(line)
                os._exit(0)
            line.close()


if __name__ == "__main__":
    main(sys.argv[1])
