"""A process whose first thread has ended while another goes on: to a quick look it is a zombie."""

import platform
import sys

import psutil

_EXIT = {"x86_64": 60, "aarch64": 93}[platform.machine()]
HEADLESS = f"""{sys.executable} -c '
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(300,)).start()
ctypes.CDLL(None).syscall({_EXIT}, 0)'"""


def is_headless(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() > 1
    except psutil.NoSuchProcess:
        return False
