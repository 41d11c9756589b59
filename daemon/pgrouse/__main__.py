"""`python -m pgrouse` is `pgrouse`."""

import sys

from pgrouse.cli import main

if __name__ == "__main__":
    sys.exit(main())
