"""A host that imports nothing: says its number, forks, waits."""

from __future__ import annotations

import os
import sys
import time
from multiprocessing.connection import Connection


def main() -> None:
    line = Connection(int(sys.argv[1]))
    while True:
        try:
            number, request = line.recv()
        except EOFError:
            return
        if request == "wait":
            continue
        said = os.getpid()
        if request == "fork":
            said = os.fork()
            if said == 0:
                time.sleep(600)
                os._exit(0)
        line.send((number, said))


if __name__ == "__main__":
    main()
