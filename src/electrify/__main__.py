"""`python -m electrify`, also for torchrun."""

import sys

from .cli import main

sys.exit(main())
