"""``python -m dfsim.cli``."""

from . import main

main()
