"""`report.html`: a run as a page for people, drawn from its folder.

`render` puts it together; each other file makes the content of one section, `folder` reads what they need,
`page.html`, `parts.html` and `style.css` say how it looks.
"""

from parity.report.page.render import NAME, write

__all__ = ["NAME", "write"]
