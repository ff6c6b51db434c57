"""`python -m onstage.models.bench`."""

import sys

from .driver import main

sys.exit(main())
