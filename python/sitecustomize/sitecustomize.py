"""Starts tailspan in a Python process, then hands over to the sitecustomize that this one hides.

Another tool's sitecustomize that does the same may run this one again, or be run by it: each is run once, in the order
of the path.
"""

import os
import sys


def _hand_over(done):
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))
    folders = [os.path.abspath(entry or os.curdir) for entry in sys.path]
    # What stands before this folder has run already, or there is nothing: else Python would not have come here.
    behind = folders.index(here) + 1 if here in folders else 0
    for entry, folder in list(zip(sys.path, folders))[behind:]:
        if folder == here or folder in done:
            continue
        spec = PathFinder.find_spec("sitecustomize", [entry])
        if spec is None or spec.loader is None:
            continue
        done.add(folder)
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)
        return


try:
    import tailspan_start
except ImportError:
    _hand_over(set())
else:
    tailspan_start.install()
    _hand_over(tailspan_start.handed_over_to)
