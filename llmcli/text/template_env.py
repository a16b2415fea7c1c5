"""The jinja environment that chat templates are written for, sandboxed and bounded.

It has what transformers gives a template: `generation` blocks, loop controls, `tojson` without
HTML escapes, `raise_exception`, `strftime_now`. Must not know messages, folders or tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime

from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateRuntimeError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from llmcli.text.template_limits import Guard, RenderLimits


class TemplateRefusalError(TemplateRuntimeError):
    """The template itself called raise_exception."""


class GenerationBlock(Extension):
    """`{% generation %}` marks the assistant's part for training; here it prints its body."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = nodes.CallBlock(self.call_method("_body"), [], [], body)
        return call.set_lineno(line)

    def _body(self, caller: Macro) -> str:
        return caller()


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """One environment per template, because its guard counts that template's steps."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, limits: RenderLimits) -> None:
        self.guard = guard = Guard(limits)
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[GenerationBlock, LoopControlExtension],
            finalize=guard.measured,
            optimized=False,
        )
        # Called by generated code as environment.tick(), so that no template name can hide them
        self.tick = guard.tick
        self.bounded_concat = guard.concat
        self.concat = guard.join  # type: ignore[method-assign]
        self.filters["tojson"] = _tojson
        guard.guard_filters(self.filters)
        del self.globals["lipsum"]
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now
        self.globals["dict"] = _Dict()
        self.globals["namespace"] = _Namespace

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        self.guard.binop(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def unsafe_undefined(self, obj: object, attribute: str) -> Undefined:
        # jinja would print nothing and refuse only the next access
        raise SecurityError(f"it reaches for {attribute!r} of a {type(obj).__name__}")

    def wrap_str_format(self, value: object) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is not None:
            self.guard.braces(str(getattr(value, "__self__", "")))
        return wrapped

    def call(
        __self,  # noqa: N805
        __context: Context,
        __obj: object,
        *args: object,
        **kwargs: object,
    ) -> object:
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str):
            name = str(getattr(__obj, "__name__", ""))
            __self.guard.method(name, owner, (*args, *kwargs.values()))
        return super().call(__context, __obj, *args, **kwargs)

    def _generate(
        self,
        source: nodes.Template,
        name: str | None,
        filename: str | None,
        defer_init: bool = False,
    ) -> str:
        _count_steps(source)
        _bound_concats(source)
        source.set_environment(self)
        return super()._generate(source, name, filename, defer_init)


def _count_steps(tree: nodes.Template) -> None:
    """Begin every loop body and macro body with a call of environment.tick()."""
    for node in tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock)):
        assert isinstance(node, (nodes.For, nodes.Macro, nodes.CallBlock))
        # The attribute's name is copied into the generated code; this skips the sandbox's slow call
        tick = nodes.EnvironmentAttribute("tick()")
        node.body.insert(0, nodes.ExprStmt(tick).set_lineno(node.lineno))


def _bound_concats(node: nodes.Node) -> None:
    """Replace `a ~ b` by environment.bounded_concat(a, b), innermost first."""
    for field, value in node.iter_fields():
        if isinstance(value, nodes.Node):
            _bound_concats(value)
            setattr(node, field, _bounded(value))
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, nodes.Node):
                    _bound_concats(item)
            setattr(node, field, [_bounded(v) if isinstance(v, nodes.Node) else v for v in value])


def _bounded(node: nodes.Node) -> nodes.Node:
    if not isinstance(node, nodes.Concat):
        return node
    target = nodes.EnvironmentAttribute("bounded_concat")
    return nodes.Call(target, node.nodes, [], None, None).set_lineno(node.lineno)


class _Dict:
    """`dict(...)` for templates, without the class's own attributes in reach."""

    def __call__(self, *args: object, **items: object) -> object:
        return dict(*args, **items)

    def fromkeys(self, *args: object) -> dict[object, object]:
        return dict.fromkeys(*args)  # type: ignore[call-overload, no-any-return]


class _Namespace(Namespace):
    """jinja's namespace, but no underscore names may be stored on it."""

    def __init__(*args: object, **items: object) -> None:
        this, *values = args
        attributes = dict(*values, **items)
        for name in attributes:
            _refuse_underscore(name)
        Namespace.__init__(this, attributes)

    def __setitem__(self, name: str, value: object) -> None:
        _refuse_underscore(name)
        super().__setitem__(name, value)


def _refuse_underscore(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace attribute that begins with an underscore: {name!r}")


def _raise_exception(message: object) -> None:
    raise TemplateRefusalError(str(message))


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)
