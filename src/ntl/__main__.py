"""``python -m ntl``, the same as ``ntl``."""

import sys

from ntl.cli import main

if __name__ == "__main__":
    sys.exit(main())
