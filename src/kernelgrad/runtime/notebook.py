"""How kernels, gradients and recordings look in a notebook: small pieces of HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from .parameters import Parameter

_YES = {True: "yes", False: ""}


def kernel_html(signature: str, parameters: Sequence[Parameter]) -> str:
    """The signature, which may have several lines, and a row for each parameter."""
    heads = ("parameter", "C type", "dtype", "read", "written")
    rows = [(p.name, p.c_type, p.dtype or "", _YES[p.read], _YES[p.written]) for p in parameters]
    table = _row("th", heads) + "".join(_row("td", row) for row in rows)
    tag = "pre" if "\n" in signature else "code"
    return f"<{tag}>{escape(signature)}</{tag}><table>{table}</table>"


def gradient_html(signature: str, source: str) -> str:
    """The signature, and the text behind a click."""
    text = f"<details><summary>CUDA C++</summary><pre>{escape(source)}</pre></details>"
    return f"<code>{escape(signature)}</code>{text}"


def text_html(text: str, title: str = "", more: str = "") -> str:
    """A text, and another behind a click, if there is one."""
    behind = f"<details><summary>{escape(title)}</summary><pre>{escape(more)}</pre></details>" if title else ""
    return f"<pre>{escape(text)}</pre>{behind}"


def module_html(name: str, functions: Sequence[str]) -> str:
    listed = "".join(f"<li><code>{escape(signature)}</code></li>" for signature in functions)
    return f"module <b>{escape(name)}</b><ul>{listed}</ul>"


def _row(cell: str, texts: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{cell}>{escape(text)}</{cell}>' for text in texts)}</tr>"
