"""What a function's signature says to a model: the types of its arguments, their schema, its description."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, Union, get_args, get_type_hints

import msgspec
from msgspec import Struct, UnsetType

from rewake.events.errors import InvalidSetting

Function = Callable[..., Any]
Field = tuple[str, Any] | tuple[str, Any, Any]

UNNAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

SECTION = re.compile(r"\n\s*(?:(?:Args|Arguments|Parameters|Params|Returns|Yields|Raises|Examples?)\s*:?\s*\n|:\w+)")
"""Where a docstring stops telling what the function does."""


def hints(fn: Function, scope: Mapping[str, Any]) -> dict[str, Any]:
    """A function's annotations as types; `scope` are the names around its definition."""
    try:
        return get_type_hints(fn, localns=dict(scope), include_extras=True)
    except Exception as error:
        raise InvalidSetting("annotations", fn, f"{type(error).__name__}: {error}") from error


def context_of(fn: Function, scope: Mapping[str, Any], context: type) -> str | None:
    """The parameter that is given the context of the call: the one of that type."""
    found = [name for name, hint in hints(fn, scope).items() if name != "return" and is_or_has(hint, context)]
    return found[0] if found else None


def is_or_has(hint: Any, context: type) -> bool:
    return hint is context or context in get_args(hint)


def arguments_of(fn: Function, scope: Mapping[str, Any], name: str, *, without: str | None) -> type[Struct]:
    """A struct of the arguments that a model gives; one that it may leave out and did is the default, or UNSET."""
    types = hints(fn, scope)
    parameters = [each for each in inspect.signature(fn).parameters.values() if each.name != without]
    if unnamed := [str(each) for each in parameters if each.kind in UNNAMED]:
        raise InvalidSetting("arguments", unnamed[0], "a tool takes its arguments by name")
    fields = [field(each, types.get(each.name, Any)) for each in parameters]
    return msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)


def field(parameter: inspect.Parameter, hint: Any) -> Field:
    """A parameter as a struct's field: a default that JSON can not show is left to the function."""
    default = parameter.default
    if default is inspect.Parameter.empty:
        return (parameter.name, hint)
    if default is None or isinstance(default, (bool, int, float, str)):
        return (parameter.name, hint, default)
    return (parameter.name, Union[hint, UnsetType], msgspec.UNSET)  # noqa: UP007  (not every hint has a `|`)


def schema_of(arguments: type[Struct]) -> dict[str, Any]:
    """The JSON Schema of the arguments: an object, with the types that it refers to under `$defs`."""
    try:
        (top,), components = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    except TypeError as error:
        raise InvalidSetting("annotations", arguments.__name__, str(error)) from error
    schema = components.pop(str(top["$ref"]).removeprefix("#/$defs/"))
    schema.pop("title", None)
    return {**schema, "$defs": components} if components else schema


def described(fn: Function) -> str:
    """What a docstring says before it turns to arguments and results."""
    text = inspect.getdoc(fn) or ""
    return SECTION.split(f"\n{text}", maxsplit=1)[0].strip()
