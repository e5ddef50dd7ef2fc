"""Elements of a page with escaped text: HTML that is also XML, so that any parser reads it."""

from collections.abc import Iterable
from html import escape

__all__ = ["Markup", "concatenate", "element"]

VOID_TAGS = {"br", "circle", "link", "line", "meta", "path", "rect"}
ALLOWED_SPACES = " \n\t\N{NO-BREAK SPACE}"


class Markup(str):
    """Text that is already markup."""

    __slots__ = ()


def element(tag: str, /, *inside: str | None, **attributes: str | float | None) -> Markup:
    """Return an element; content is escaped unless it is markup, and None is left out.

    The name ``class_`` means class, other underscores mean hyphens.

    Example:
        >>> print(element("td", "<script>", class_="number", aria_label='"x"'))
        <td class="number" aria-label="&quot;x&quot;">&lt;script&gt;</td>
    """
    named = ((key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items() if value is not None)
    head = " ".join([tag, *(f'{key}="{escape(_escape_unprintable(_format(value)))}"' for key, value in named)])
    if tag in VOID_TAGS:
        return Markup(f"<{head}/>")
    return Markup(f"<{head}>{concatenate(inside)}</{tag}>")


def concatenate(parts: Iterable[str | None]) -> Markup:
    """Concatenate text and elements."""
    known = (part for part in parts if part is not None)
    return Markup("".join(part if isinstance(part, Markup) else escape(_escape_unprintable(part)) for part in known))


def _format(value: str | float) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def _escape_unprintable(text: str) -> str:
    """Escape characters that a page must not hold: control characters and surrogates."""
    return "".join(
        part if part.isprintable() or part in ALLOWED_SPACES else part.encode("unicode_escape").decode()
        for part in text
    )
