"""Language models behind the `Model` port."""

from .by_name import load

__all__ = ["load"]
