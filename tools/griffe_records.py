"""For the reference: named tuples and Structs show their fields in a signature, as dataclasses do."""

from __future__ import annotations

from typing import Any

import griffe

RECORDS = {"typing.NamedTuple", "msgspec.Struct", "NamedTuple", "Struct"}


class Records(griffe.Extension):
    """Adds the constructor that these classes generate."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        bases = {str(getattr(base, "canonical_path", base)) for base in cls.bases}
        if "__init__" in cls.members or not bases & RECORDS:
            return
        fields = [field for field in cls.attributes.values() if field.annotation and "property" not in field.labels]
        parameters = [griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)]
        for field in fields:
            parameters.append(
                griffe.Parameter(
                    field.name,
                    annotation=field.annotation,
                    kind=griffe.ParameterKind.positional_or_keyword,
                    default=field.value,
                )
            )
        cls.set_member("__init__", griffe.Function("__init__", parameters=griffe.Parameters(*parameters)))
