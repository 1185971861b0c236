"""Puts every registered estimator through the contract tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from enumerable import name  # noqa: F401
