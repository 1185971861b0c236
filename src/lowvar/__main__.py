"""``python -m lowvar``: the command line."""

import sys

from lowvar.cli import main

sys.exit(main())
