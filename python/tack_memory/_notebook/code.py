"""What runs a cell, or one expression, as the notebook itself would."""

from __future__ import annotations

import ast
import inspect

from IPython.core.error import UsageError

from .arguments import glued

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def of_expression(shell: Any, source: str, local_ns: Mapping[str, Any] | None) -> Callable[[], object]:
    """What returns the value of an expression. `local_ns` has the variables of where the magic stands: a function's, or the notebook's own.

    What is no expression is a ValueError for the user to read."""
    __tracebackhide__ = True
    transformed = shell.transform_cell(source).strip().rstrip(";")
    name = shell.compile.cache(transformed, shell.displayhook.prompt_count, raw_code=source)
    try:
        tree: Any = shell.compile.ast_parse(transformed, filename=name, symbol="eval")
        code = _compile(shell, tree, name, "eval")
        values = {} if local_ns is None or local_ns is shell.user_ns else _variables(tree, local_ns)
        if values:  # as a function's parameters, so that comprehensions and lambdas in it see them, too
            parameters = ast.arguments(posonlyargs=[], args=[ast.arg(arg=variable) for variable in values], kwonlyargs=[], kw_defaults=[], defaults=[])
            tree.body = ast.copy_location(ast.Lambda(args=parameters, body=tree.body), tree.body)
            code = _compile(shell, ast.fix_missing_locations(tree), name, "eval")
    except SyntaxError as error:
        raise ValueError(_why_no_expression(source, error)) from None

    def run() -> object:
        __tracebackhide__ = True
        value = eval(code, shell.user_global_ns, shell.user_ns)
        return value(**values) if values else value

    return run


def of_cell(shell: Any, source: str) -> Callable[[], None]:
    """What runs a cell in the notebook's namespace; what its last line gives is shown as always."""
    __tracebackhide__ = True
    transformed = shell.transform_cell(source)
    name = shell.compile.cache(transformed, shell.displayhook.prompt_count, raw_code=source)
    tree: Any = shell.compile.ast_parse(transformed, filename=name, symbol="exec")
    quiet = shell.displayhook.semicolon_at_end_of_expression(transformed)  # only now: it has been parsed
    tree = shell.transform_ast(tree)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) and not quiet else None
    codes = [_compile(shell, tree, name, "exec")]
    if last is not None:  # as IPython itself does: its value goes to sys.displayhook
        codes.append(_compile(shell, ast.Interactive([last]), name, "single"))

    def run() -> None:
        __tracebackhide__ = True
        for code in codes:
            eval(code, shell.user_global_ns, shell.user_ns)

    return run


def _compile(shell: Any, tree: Any, name: str, mode: str) -> Any:
    code = compile(tree, name, mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | getattr(shell.compile, "flags", 0), dont_inherit=True)
    if code.co_flags & inspect.CO_COROUTINE:
        raise UsageError("memory_peak: a magic cannot run a top-level await; write `with tack_memory.memory_peak() as peak:` in the cell")
    return code


def _variables(tree: ast.AST, local_ns: Mapping[str, Any]) -> dict[str, Any]:
    """Those that the expression names."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return {name: local_ns[name] for name in sorted(names) if name in local_ns}


def _why_no_expression(source: str, error: SyntaxError) -> str:
    try:
        compile(source, "<line>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except SyntaxError:
        pass
    else:
        return f"one line takes an expression; a statement needs %%memory_peak: {source}"
    hint = glued(source.partition(" ")[0], ("-d", "-l"))
    return f"this is no expression: {source}{hint or f' ({error.msg})'}"
