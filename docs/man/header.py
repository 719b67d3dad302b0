"""What a C header of dlock's declares, with its comments."""
import re


def text_of(comment):
    """A comment without its stars."""
    lines = comment.strip()[2:-2].split("\n")
    return "\n".join(re.sub(r"^ \* ?", "", line) for line in lines).strip()


def top(header):
    """The comment that a header begins with, without title and licence."""
    return text_of(re.match(r"/\*.*?\*/", header, re.S)[0]).partition("SPDX-License-Identifier: MIT\n")[2].strip()


COMMENT = r"(/\*(?:(?!\*/).)*\*/\n)"


def functions(header):
    """{name: (type, [arguments], text)} of what is exported."""
    found = {}
    for comment, kind, name, arguments in re.findall(
        COMMENT + r"DLOCK_EXPORT ([^;(]*?)(\w+)\(([^;]*)\);", header, re.S
    ):
        flat = " ".join(arguments.split())
        found[name] = (kind.strip(), [] if flat == "void" else flat.split(", "), text_of(comment))
    return found


def members(kind, body):
    """(declaration, text) of each member of a struct or an enum."""
    found = []
    end = ";" if kind.startswith("struct") else ",?"
    for before, declaration, after in re.findall(
        r"(?:^ *(/\*(?:(?!\*/).)*\*/)\n)?^ {4}([^ /#][^/]*?)" + end + r"(?: *(/\*(?:(?!\*/).)*\*/))?$", body, re.M | re.S
    ):
        comment = "\n".join(text_of(re.sub(r"\n +", "\n ", one)) for one in (before, after) if one)
        found.append((" ".join(declaration.split()), comment))
    return found


def types(header):
    """{"struct dlock_options": (text, [members])} of structs and enums, and of types of functions."""
    found = {}
    for comment, kind, body in re.findall(COMMENT + r"?((?:struct|enum) \w+) \{\n(.*?)^\};", header, re.M | re.S):
        if "DLOCK_X" not in body:
            found[kind] = (text_of(comment) if comment else "", members(kind, body))
    for comment, declaration, name in re.findall(COMMENT + r"(typedef \w+ \(?\*?(\w+)\)?\([^;]*\));", header, re.S):
        found[name] = (" ".join(declaration.split()) + "\n\n" + text_of(comment), [])
    return found


def rows(header, macro):
    """The rows of a list `#define MACRO(X) X(…) X(…)`, each a list of its columns."""
    body = re.search(rf"#define {macro}\(X\)(.*?[^\\])\n", header, re.S)[1].replace("\\\n", " ")
    return [
        [number or word or text for number, word, text in re.findall(r"(-?\d+)|([A-Z]+)|\"((?:[^\"])*)\"", row)]
        for row in re.findall(r"X\(((?:[^()\"]|\"[^\"]*\")*)\)", body)
    ]
