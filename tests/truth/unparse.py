"""Nodes of the oracle's syntax as text again."""

from __future__ import annotations

from fractions import Fraction

from tests.oracle import syntax as ast


def unparse(node: ast.Formula) -> str:
    """Return a text that parses to the node; every operand that is not an atom stands in parentheses."""
    match node:
        case ast.Ask(quantity):
            return _goal(quantity, "=?")
        case ast.Regret(_, under):
            where = world(under.quantity.world).removesuffix(".")
            plain = _goal(under.quantity, f"{under.op}{decimal(under.bound)}", "")
            return f"regret({where}, {plain})"
        case ast.Compare(quantity, op, bound):
            return _goal(quantity, f"{op}{decimal(bound)}")
        case ast.Const(value):
            return "true" if value else "false"
        case ast.Label(name):
            return f'"{name}"'
        case ast.Not(inner):
            return f"!{_operand(inner)}"
        case ast.Next(inner):
            return f"X {_operand(inner)}"
        case ast.Timed(op, first, last, inner):
            return f"{op}[{first},{last}] {_operand(inner)}"
        case ast.Binary(op, left, right):
            return f"{_operand(left)} {op} {_operand(right)}"
        case ast.Until(op, first, last, left, right):
            return f"{_operand(left)} {op}[{first},{last}] {_operand(right)}"


def decimal(value: Fraction) -> str:
    """Return the decimal that a bound was read from."""
    digits = 0
    while (value * 10**digits).denominator != 1:
        digits += 1
    sign, whole = "-" if value < 0 else "", str(abs(value * 10**digits).numerator).rjust(digits + 1, "0")
    return f"{sign}{whole[:-digits]}.{whole[-digits:]}" if digits else f"{sign}{whole}"


def world(node: ast.World) -> str:
    """Return a world with its point."""
    change = _change(node.change)
    if node.baseline is not None:
        change = f"delta({change},{_change(node.baseline)})"
    return f"{change}@{node.offset}."


def _goal(quantity: ast.Quantity, ask: str, where: str | None = None) -> str:
    before = world(quantity.world) if where is None else where
    if isinstance(quantity, ast.Reward):
        return f"{before}R{ask} [ C[{quantity.first},{quantity.last}] ]"
    return f"{before}P{ask} [ {unparse(quantity.body)} ]"


def _change(node: ast.Change) -> str:
    length = "" if node.length is None else f"[{node.length}]"
    match node.kind:
        case "do":
            return f"do({node.name}){length}"
        case "model":
            return f"model:{node.name}"
    return node.name + length


def _operand(node: ast.Node) -> str:
    text = unparse(node)
    return text if isinstance(node, ast.Const | ast.Label | ast.Compare | ast.Not) else f"({text})"
