"""The blocks of code in the documents, and what is said of them in an HTML comment right in front of each:

    <!-- not run: REASON -->       it cannot be run here, or takes too long
    <!-- run by FILE -->           that test of the tree reads it out of the page, and runs it
    <!-- paths under FOLDER -->    a list of files and folders, which are there
    <!-- URIs -->                  forms of URIs, whose schemes and keys the command knows
    <!-- frame: FILE -->           a fragment; tests/programs/docs/frames/FILE has what goes around it
    <!-- unit: NAME -->            a unit of systemd
    <!-- may fail: COMMAND; … -->  of the commands in this block these may end with a status that is not 0

A block without one is run as what its language says it is. `<!-- all blocks are run by FILE -->` holds for a page.
"""
import dataclasses
import glob
import os
import re

TREE = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))


@dataclasses.dataclass
class Block:
    page: str
    line: int
    language: str  # "" where none is said, "indented" where there is no fence
    text: str
    rules: dict  # from the comment: "frame" → "report.c"

    def __str__(self):
        return f"{self.page}:{self.line}"


def pages():
    """Every document that a reader is led to, seen from the root of the tree."""
    found = [page for pattern in ("*.md", "docs/*.md", "docs/servers/*.md", "bindings/*/README.md") for page in glob.glob(pattern, root_dir=TREE)]
    return sorted(found)


def rules_of(comment):
    """What a comment says, as {rule: value}; {} for a comment about something else."""
    said = re.fullmatch(r"<!-- (not run|run by|paths under|URIs|frame|unit|may fail)(?::? (.*))? -->", comment)
    return {said[1]: said[2] or ""} if said else {}


def read(page):
    """The blocks of a page."""
    with open(os.path.join(TREE, page)) as file:
        lines = file.read().splitlines()
    blocks, open_block, before, comment = [], None, "", ""
    for number, line in enumerate(lines, 1):
        fence = re.fullmatch(r"```([\w+]*)", line)
        if open_block is not None:
            ends = fence if open_block.language != "indented" else line and not line.startswith("    ")
            if not ends:
                open_block.text += (line[4:] if open_block.language == "indented" else line) + "\n"
                continue
            open_block, before = None, ""
            if fence:
                continue
        if fence or (line.startswith("    ") and before == "" and not in_list(lines[: number - 1])):
            language = fence[1] if fence else "indented"
            open_block = Block(page, number, language, "" if fence else line[4:] + "\n", rules_of(comment))
            blocks.append(open_block)
        before, comment = line, line if line.startswith("<!--") else ""
    for line in lines:
        reader = re.fullmatch(r"<!-- all blocks are run by (.*) -->", line)
        if reader:
            for block in blocks:
                block.rules.setdefault("run by", reader[1])
    return blocks


def in_list(lines):
    """Whether an indented line after these continues an item of a list."""
    for line in reversed(lines):
        if line and not line.startswith(" "):
            return re.match(r"([-*]|\d+\.) ", line) is not None
    return False


def all_blocks():
    """Of all pages."""
    return [block for page in pages() for block in read(page)]
