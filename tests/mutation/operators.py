"""The changes: comparisons, arithmetic, connectives, constants, conditions, statements left out.

Left alone are annotations, docstrings, decorators, class keywords, assertions (they state invariants), and the text of
messages.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Mutant", "mutants_of"]

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.MatMult: ast.Mult,
}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum"}
Function = ast.FunctionDef | ast.AsyncFunctionDef
Change = tuple[ast.AST, str]
"""A node and the text that takes its place."""


@dataclass(frozen=True)
class Mutant:
    """One change of one file.

    Attributes:
        file: relative to the repository's root.
        function: qualified name of the outermost function changed; "" at module or class level and in defaults.
        first_line: of that function's code (its first decorator's), as Python counts it; 0 without one.
        lines: those of the source that the change is on, first and last.
        span: what is replaced, in bytes of the source.
        before, after: the text there and what takes its place.
        number: tells equal changes in one function apart, from 1.
    """

    file: str
    function: str
    first_line: int
    lines: tuple[int, int]
    span: tuple[int, int]
    before: str
    after: str
    number: int = 1

    @property
    def key(self) -> str:
        """What names it, also when lines have moved."""
        change = f"{self.before} -> {self.after}"
        return f"{self.function or '<module>'}: {change}" + (f" #{self.number}" if self.number > 1 else "")

    def apply(self, source: bytes) -> bytes:
        """Return the changed source."""
        return source[: self.span[0]] + self.after.encode() + source[self.span[1] :]


def mutants_of(path: Path, root: Path) -> list[Mutant]:
    """Return every mutant of a file, in the order of its text."""
    return _Finder(path, root).found()


class _Finder:
    def __init__(self, path: Path, root: Path) -> None:
        self._source = path.read_bytes()
        self._file = str(path.relative_to(root))
        starts = [0]
        for line in self._source.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        self._starts = starts

    def found(self) -> list[Mutant]:
        tree = ast.parse(self._source)
        counts: dict[tuple[str, str, str], int] = {}
        mutants = []
        for scope, first_line, node, text in sorted(self._walk(tree, "", 0), key=lambda each: self._span(each[2])):
            before, after = self._text(node), text
            same = scope, before, after
            counts[same] = counts.get(same, 0) + 1
            lines = node.lineno, _header_end(node)  # type: ignore[attr-defined] # every node changed has a place
            mutants.append(Mutant(self._file, scope, first_line, lines, self._span(node), before, after, counts[same]))
        return mutants

    def _span(self, node: ast.AST) -> tuple[int, int]:
        place: ast.expr = node  # type: ignore[assignment] # every node changed has a place
        assert place.end_lineno is not None
        assert place.end_col_offset is not None
        first, last = self._starts[place.lineno - 1], self._starts[place.end_lineno - 1]
        return first + place.col_offset, last + place.end_col_offset

    def _text(self, node: ast.AST) -> str:
        begin, end = self._span(node)
        return " ".join(self._source[begin:end].decode().split())

    def _walk(self, node: ast.AST, scope: str, first_line: int) -> Iterator[tuple[str, int, ast.AST, str]]:
        """Yield (function, its first line, node, new text) for a node and all below it."""
        for changed, text in _changes(node, inside=bool(first_line)):
            yield scope if first_line else "", first_line, changed, text
        for child, outside in _children(node):
            if first_line or isinstance(node, ast.Module | ast.ClassDef):
                inner, line = scope, first_line
            else:
                inner, line = scope, 0
            if not first_line and isinstance(child, Function | ast.ClassDef):
                inner = f"{scope}.{child.name}" if scope else child.name
                line = 0
            if not first_line and isinstance(node, Function) and not outside:
                line = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            yield from self._walk(child, inner, line)


def _header_end(node: ast.AST) -> int:
    end: int | None = node.end_lineno  # type: ignore[attr-defined] # as above
    assert end is not None
    return end


def _children(node: ast.AST) -> Iterator[tuple[ast.AST, bool]]:
    """Yield the children that may change, and whether they belong to the surroundings (a function's defaults)."""
    match node:
        case ast.Assert() | ast.JoinedStr():
            return
        case ast.Raise(exc=ast.Call(func=ast.Name("AssertionError"))):
            return
        case ast.Expr(value=ast.Call(func=ast.Name("assert_never"))) | ast.Expr(value=ast.Constant()):
            return
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            for default in (*node.args.defaults, *node.args.kw_defaults):
                if default is not None:
                    yield default, True
            yield from ((each, False) for each in node.body)
        case ast.ClassDef():
            yield from ((each, False) for each in node.body)
        case ast.AnnAssign():
            if node.value is not None:
                yield node.value, False
        case ast.Assign(targets=[ast.Name("__all__")]):
            return
        case ast.Import() | ast.ImportFrom():
            return
        case ast.keyword(arg="strict"):  # states an invariant
            return
        case _:
            yield from ((each, False) for each in ast.iter_child_nodes(node))


def _changes(node: ast.AST, *, inside: bool) -> Iterator[Change]:
    """Yield the changes of a node itself; `inside` a function's body or not."""
    match node:
        case ast.Compare():
            yield from _comparisons(node)
        case ast.BinOp() if inside or not isinstance(node.op, ast.BitOr):  # those outside are types
            yield node, _binary(node)
        case ast.BoolOp():
            yield node, _connective(node)
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert()):
            yield node, f"({ast.unparse(node.operand)})"
        case ast.Constant():
            yield from _constants(node)
        case ast.MatchSingleton(value=bool()):
            yield node, str(not node.value)
        case ast.Call(func=ast.Name(name)) if name in CALLS:
            yield node.func, CALLS[name]
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in CALLS:
            yield node.func, f"{ast.unparse(value)}.{CALLS[name]}"
        case ast.If() | ast.While() | ast.IfExp():
            yield from _negated(node.test)
        case ast.comprehension():
            for condition in node.ifs:
                yield from _negated(condition)
        case ast.match_case():
            yield from _cases(node)
        case ast.stmt() if inside:
            yield from _statements(node)


def _comparisons(node: ast.Compare) -> Iterator[Change]:
    for n, op in enumerate(node.ops):
        for other in COMPARISONS[type(op)]:
            ops = [*node.ops[:n], other(), *node.ops[n + 1 :]]
            yield node, f"({ast.unparse(ast.Compare(node.left, ops, node.comparators))})"
    for text in (node.left, *node.comparators):
        yield from _names(text)


def _names(node: ast.expr) -> Iterator[Change]:
    """Yield changes of words that something is compared with."""
    parts = node.elts if isinstance(node, ast.Tuple | ast.Set | ast.List) else [node]
    for part in parts:
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part, repr(part.value + "x")


def _binary(node: ast.BinOp) -> str:
    return f"({ast.unparse(ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right))})"


def _connective(node: ast.BoolOp) -> str:
    other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    return f"({ast.unparse(ast.BoolOp(other, node.values))})"


def _constants(node: ast.Constant) -> Iterator[Change]:
    match node.value:
        case bool():
            yield node, str(not node.value)
        case int():
            yield node, str(node.value + 1)
            yield node, f"({node.value - 1})"
        case float():
            yield node, repr(node.value + 1.0)


def _negated(test: ast.expr) -> Iterator[Change]:
    plain = isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) not in (ast.In, ast.NotIn)
    if not plain and not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
        yield test, f"(not ({ast.unparse(test)}))"


def _cases(node: ast.match_case) -> Iterator[Change]:
    if isinstance(node.body[0], ast.Raise) and "AssertionError" in ast.unparse(node.body[0]):
        return  # never reached
    if node.guard is not None:
        yield node.guard, f"(not ({ast.unparse(node.guard)}))"
        yield node.guard, "False"
        yield node.guard, "True"
    elif not (isinstance(node.pattern, ast.MatchAs) and node.pattern.pattern is None):
        yield node.pattern, f"{ast.unparse(node.pattern)} if False"
    for pattern in ast.walk(node.pattern):
        if isinstance(pattern, ast.MatchValue):
            yield from _names(pattern.value)


def _statements(node: ast.stmt) -> Iterator[Change]:
    match node:
        case ast.Expr(value=ast.Constant()) | ast.Expr(value=ast.Call(func=ast.Name("assert_never"))):
            return
        case ast.Expr():
            yield node, "pass"
        case ast.Delete() if not all(isinstance(target, ast.Name) for target in node.targets):
            yield node, "pass"
        case ast.Assign() if not all(isinstance(target, ast.Name) for target in _targets(node)):
            yield node, "pass"
        case ast.AugAssign():
            yield node, "pass"
            other = ARITHMETIC[type(node.op)]()
            yield node, ast.unparse(ast.AugAssign(node.target, other, node.value))
        case ast.Return(value=value) if value is not None and not _is_no(value):
            yield node, "return None"
        case ast.Return(value=None):
            yield node, "pass"
        case ast.Break():
            yield node, "continue"
        case ast.Continue():
            yield node, "break"
        case ast.Raise(exc=ast.Call(func=ast.Name("AssertionError"))):
            return
        case ast.Raise():
            yield node, "pass"
        case ast.Try():
            for handler in node.handlers:
                if handler.type is not None:
                    yield handler.type, "ZeroDivisionError"


def _targets(node: ast.Assign) -> Iterator[ast.expr]:
    for target in node.targets:
        if isinstance(target, ast.Tuple):
            yield from target.elts
        else:
            yield target


def _is_no(value: ast.expr) -> bool:
    """None, or False, which is the same to whoever asks whether something is true."""
    return isinstance(value, ast.Constant) and (value.value is None or value.value is False)
