"""Memory as tools for a model: the schemas of the tools, and the check of a call's arguments."""

from __future__ import annotations

from typing import Any

from ..errors import InvalidInput, shown

_KINDS = ["fact", "preference", "identity", "procedure", "blocker", "reference"]
_TOOLS: dict[str, dict[str, Any]] = {
    "recall": {
        "description": (
            "Searches what was remembered in this and earlier sessions. Use it before you ask the user for something "
            "that they may have said before. Ask in plain words; names and times in the question count."
        ),
        "input_schema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What you want to know, such as: where does Ada live?"},
                "limit": {"type": "integer", "description": "How many memories at most.", "minimum": 1, "maximum": 50},
            },
            "required": ["query"],
        },
    },
    "remember": {
        "description": (
            "Remembers something beyond this session: one statement that can be understood by itself, with names "
            "instead of pronouns. Not for what only matters now."
        ),
        "input_schema": {
            "type": "object",
            "properties": {
                "content": {"type": "string", "description": "The statement."},
                "kind": {"type": "string", "enum": _KINDS, "description": "What sort of statement it is."},
                "key": {
                    "type": "string",
                    "description": "What it is about, such as 'home city': it replaces what was remembered under it.",
                },
                "importance": {"type": "number", "minimum": 0, "maximum": 1},
            },
            "required": ["content"],
        },
    },
    "forget": {
        "description": "Forgets a memory permanently, because the user wishes it or because it is wrong.",
        "input_schema": {
            "type": "object",
            "properties": {"ref": {"type": "string", "description": "The ref of the memory, as recall showed it."}},
            "required": ["ref"],
        },
    },
}


def memory_tools(form: str) -> list[dict[str, Any]]:
    """The tools in a provider's format: "anthropic" or "openai". Raises `InvalidInput`."""
    if form == "anthropic":
        return [{"name": name, **tool} for name, tool in _TOOLS.items()]
    if form == "openai":
        return [
            {
                "type": "function",
                "function": {
                    "name": name,
                    "description": tool["description"],
                    "parameters": tool["input_schema"],
                },
            }
            for name, tool in _TOOLS.items()
        ]
    raise InvalidInput(f"unknown tool form {shown(form)}", hint='use "anthropic" or "openai"')


def arguments_of(name: str, given: object) -> dict[str, Any]:
    """The arguments of a call that the tool knows, without null values.

    Raises `InvalidInput` if the tool is unknown, the arguments are not an object, or a required one is missing or
    empty.
    """
    tool = _TOOLS.get(name) if isinstance(name, str) else None
    if tool is None:
        raise InvalidInput(f"there is no tool {shown(name)}", hint=f"valid tools: {', '.join(_TOOLS)}")
    schema = tool["input_schema"]
    if not isinstance(given, dict):
        raise InvalidInput(f"the arguments of {name} are not an object", hint="give them as a JSON object")
    for field in schema["required"]:
        if not isinstance(given.get(field), str) or not given[field].strip():
            raise InvalidInput(f"{name} needs `{field}`", hint=schema["properties"][field]["description"])
    return {field: value for field, value in given.items() if field in schema["properties"] and value is not None}
