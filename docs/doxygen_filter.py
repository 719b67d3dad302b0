#!/usr/bin/env python3
"""What Doxygen reads in the place of a header: doxygen_filter.py HEADER

The headers' comments are written for people, without marks. Here they get those that Doxygen looks for: a comment belongs
to the declaration behind it, or to the one in front of it on its line. Lists of codes become what they stand for."""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "man"))
import header


def escaped(text):
    """Without what Doxygen would take for its own, but for backquotes."""
    parts = re.split(r"(`[^`\n]*`)", text)
    return "".join(part if i % 2 else re.sub(r"([\\@&$#<>%])", r"\\\1", part) for i, part in enumerate(parts))


def marked(found):
    before, text = found.groups()
    return before + ("/**<" if before.strip() else "/**") + escaped(text) + "*/"


def written_out(text):
    """The enum of a list X(name, number, …, meaning), each with its meaning."""

    def enumerators(found):
        pattern, macro = found.groups()
        prefix, value = re.match(r"(\w+_)##name = (.*),", pattern).groups()
        rows = header.rows(text, macro)
        return "".join(
            f"    {prefix}{row[0]} = {re.sub('number|bit', row[1], value)}, /* {row[3 if 'bit' in value else 2]} */\n"
            for row in rows
        )

    return re.sub(r"#define DLOCK_X\([^)]*\) (.*)\n +(\w+)\(DLOCK_X\)\n#undef DLOCK_X\n", enumerators, text)


def shared(text):
    """The comment in front of several #defines or typedefs, of a line each, is that of each."""
    several = r"(/\*\*(?:(?!\*/).)*\*/\n)((?:#define [^\n]*[^\\\n]\n){2,}|(?:typedef [^\n]*;\n){2,})"
    return re.sub(several, lambda found: "".join(found[1] + line + "\n" for line in found[2].splitlines()), text, flags=re.S)


def main():
    with open(sys.argv[1]) as file:
        text = written_out(file.read())
    text = re.sub(r"^( *|[^\n/]*?)/\*((?:(?!\*/).)*)\*/", marked, text, flags=re.M | re.S)
    sys.stdout.write(shared(text).replace("/**", "/** \\file\n *", 1))


if __name__ == "__main__":
    main()
