"""Starts tailspan in a Python process, then hands over to the sitecustomize that this one hides."""

import os
import sys


def _hand_over():
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))
    others = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != here]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    import tailspan_start
except ImportError:
    pass
else:
    tailspan_start.install()
_hand_over()
