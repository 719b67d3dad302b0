"""Text of comments and of Markdown as mdoc(7)."""
import re

CODE = r"\b(?:dlock|DLOCK)_\w+(?:\(\))?|\bstruct dlock_\w+"


def plain(text):
    """What roff would take for its own is escaped, and what is not ASCII is named."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("^", "\\(ha").replace("~", "\\(ti")
    return "".join(c if ord(c) < 128 else f"\\[u{ord(c):04X}]" for c in text)


def inline(text):
    """A line of text: words of the API and what stands between backquotes are bold; links are their text."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    parts = re.split(r"(`[^`]+`|\*\*[^*]+\*\*|(?<!\w)\*\w[^*]*\w\*(?!\w)|" + CODE + ")", text)
    out = []
    for i, part in enumerate(parts):
        if i % 2 == 0:
            out.append(plain(part))
        elif part.startswith("*") and not part.startswith("**"):
            out.append("\\fI" + plain(part.strip("*")) + "\\fR")
        else:
            out.append("\\fB" + plain(part.strip("`*")) + "\\fR")
    return "".join(out)


def sentences(text):
    """A paragraph, each sentence on a line of its own, as roff wants it."""
    text = " ".join(text.split())
    lines = re.sub(r"(?<=[^. ][.!?]) (?=[A-Z`*\[(])", "\n", text).split("\n")
    return [re.sub(r"^([.'])", r"\\&\1", inline(line)) for line in lines if line]


def argument(text):
    """One argument of a macro, as it is."""
    return '"' + plain(text).replace('"', "\\(dq") + '"'


def tag(text):
    """The same, with what is bold in it."""
    return '"' + inline(text).replace('"', "\\(dq") + '"'


def literal(lines):
    """Lines as they are."""
    shown = [re.sub(r"^([.'])", r"\\&\1", plain(line)) for line in lines]
    return [".Bd -literal -offset indent", *shown, ".Ed"]


def listed(items, kind="-bullet"):
    """Items as (tag or None, lines of mdoc)."""
    out = [f".Bl {kind}" + (" -width Ds" if kind == "-tag" else " -compact")]
    for what, lines in items:
        out += [".It" + (f" {tag(what)}" if what is not None else ""), *lines]
    return [*out, ".El"]


def table(rows):
    """The rows of a Markdown table with a tag, perhaps a default, and what it means."""
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]
    items = []
    for row in cells[2:]:
        text = row[-1].rstrip(".") + "."
        if cells[0][1] == "default":
            text += f" Default: {row[1]}."
        items.append((row[0], sentences(text[0].upper() + text[1:])))
    return listed(items, "-tag")


def blocks(text):
    """Paragraphs, lists, tables and code of Markdown, or of a comment, whose code is indented."""
    out, lines = [], text.split("\n") + [""]
    i = 0
    while i < len(lines):
        line = lines[i]
        start = i
        if line.startswith("```"):
            i = next(j for j in range(i + 1, len(lines)) if lines[j].startswith("```")) + 1
            out.append(literal(lines[start + 1 : i - 1]))
        elif line.startswith("|"):
            while lines[i].startswith("|"):
                i += 1
            out.append(table(lines[start:i]))
        elif line.startswith("    "):
            while lines[i].startswith("    "):
                i += 1
            out.append(literal([one[4:] for one in lines[start:i]]))
        elif re.match(r" *- ", line):
            items = []
            while re.match(r" *- ", lines[i]):
                item = [re.sub(r"^ *- ", "", lines[i])]
                i += 1
                while lines[i].startswith("  ") and not re.match(r" *- ", lines[i]):
                    item.append(lines[i])
                    i += 1
                items.append((None, sentences(" ".join(item))))
                if lines[i] == "" and i + 1 < len(lines) and re.match(r" *- ", lines[i + 1]):
                    i += 1
            out.append(listed(items))
        elif line and not line.startswith("<!--"):
            while lines[i] and not re.match(r" *- |\||```", lines[i]):
                i += 1
            out.append(sentences(" ".join(lines[start:i])))
        else:
            i += 1
    return [line for k, block in enumerate(out) for line in ([".Pp"] if k and not spaced(block) else []) + block]


def spaced(block):
    """Whether it has an empty line in front of it by itself."""
    return block[0].startswith(".B") and "-compact" not in block[0]
