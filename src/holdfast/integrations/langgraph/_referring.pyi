from collections.abc import Sequence
from typing import Any

def refers_to(objects: Sequence[Any], expected: Sequence[Any], /) -> bool: ...
