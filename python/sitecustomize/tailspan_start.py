"""Starts tailspan in this process. The one folder on PYTHONPATH holds this file and our sitecustomize; the package lies
beside that folder and goes last on the path, so it can hide nothing of the application's."""

import os
import sys

handed_over_to = set()  # folders whose sitecustomize ours has run


def install():
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(here)
    if root not in sys.path:
        sys.path.append(root)
    try:
        from tailspan import start

        start.install()
    except Exception:
        pass  # nothing of ours may disturb the application; `tailspan run` sees that the status file is missing
