from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any] | bytes

def can_embed() -> bool: ...
def embed(layers: Array, words: Array, ids: Array, lengths: Array, out: Array, groups: int, turn: Array, /) -> None: ...
