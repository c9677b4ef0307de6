"""Language models behind the `Model` port."""

from .naming import load

__all__ = ["load"]
