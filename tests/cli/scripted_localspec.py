"""`localspec` with a scripted engine behind its pipe: `scripted_localspec.py SCENARIO ARGS...`."""

from __future__ import annotations

import sys
from functools import partialmethod
from pathlib import Path

from localspec.cli import main
from localspec.client import EngineClient

scenario = sys.argv.pop(1)
worker = Path(__file__).with_name("scripted_worker.py")
EngineClient.__init__ = partialmethod(EngineClient.__init__, command=(sys.executable, str(worker), scenario))
main()
