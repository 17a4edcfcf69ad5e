"""Threads that hold the GIL for known times: gil_truth.py LIBRARY HOLD_US COUNT OUT. Writes the library's log to OUT."""

import ctypes
import sys
import threading
import time


def main() -> None:
    library = ctypes.PyDLL(sys.argv[1])
    hold_us, count = int(sys.argv[2]), int(sys.argv[3])
    time.sleep(0.3)  # until the interpreter has been found from outside
    threads = [threading.Thread(target=library.hold_gil, args=(count, hold_us, hold_us // 2)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    library.write_holds(sys.argv[4].encode())


main()
