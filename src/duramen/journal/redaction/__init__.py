"""Replaces credentials before anything is stored. Start with `redactor.py`.

`names.py` decides which names are those of credentials, `shapes.py` knows what the keys of providers look like, and
`assignments.py` finds names and values inside text.
"""

from .redactor import Redactor
from .shapes import REDACTED

__all__ = ["REDACTED", "Redactor"]
