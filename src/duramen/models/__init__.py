"""Language models behind the `Model` port. Start reading at `provider.py`, which sends every request."""

from .load import load_model

__all__ = ["load_model"]
