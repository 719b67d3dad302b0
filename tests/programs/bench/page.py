"""page.py PAGE [JSON]: checks that the page of `dlock bench --html` is well-formed, needs no network, runs no script,
describes its charts in words, and has the data of JSON. Prints its text."""
import html.parser
import json
import re
import sys
import xml.etree.ElementTree

VOID = {"meta"}
# The elements that a page may have which loads and runs nothing.
TAGS = set("""html head meta title style body header main section div p span small strong time code a h1 h2 h3 ul li dl dt dd
    figure figcaption table caption thead tbody tr th td script svg desc g path line circle text tspan""".split())


class Page(html.parser.HTMLParser):
    """Parses the page as a browser does, but strictly."""

    def __init__(self):
        super().__init__()
        self.open, self.text, self.data, self.ids, self.links = [], [], "", [], []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        assert len(attributes) == len(attrs), f"an attribute twice: {attrs}"
        assert tag in TAGS, f"a <{tag}>"
        assert not [a for a in attributes if a.startswith("on") or a in ("src", "style", "srcset")], attrs
        if tag == "script":
            assert attributes == {"type": "application/json", "id": "data"}, attrs
        if "id" in attributes:
            self.ids.append(attributes["id"])
        for name in ("href", "aria-labelledby", "aria-describedby"):
            if name in attributes:
                self.links.append(attributes[name] if name != "href" else attributes[name].removeprefix("#"))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> inside {self.open}"
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.data += data
        elif self.open and self.open[-1] == "style":
            assert not re.search(r"url\(|@import|@font-face", data), "the style loads something"
        else:
            self.text.append(data)

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data}")


def check_charts(tree, interrupted):
    charts = [element for element in tree.iter() if element.tag == "svg"]
    assert charts or interrupted, "no charts"  # it may have been interrupted before the first result
    for chart in charts:
        assert chart[0].tag == "title" and chart[0].text, "a chart without a title"
        assert chart[1].tag == "desc" and chart[1].text, "a chart without a description"
        numbers = re.findall(r"nan|inf", xml.etree.ElementTree.tostring(chart, encoding="unicode").replace("<line", ""))
        assert not numbers, "a place that is no number"


def row_texts(tree, workload, server):
    """Yields the cells of each table row of a server in a workload's section."""
    for row in tree.iterfind(f".//section[@id='{workload}']//tbody/tr"):
        if row[0].text.split(",")[0] == server:
            yield ["".join(cell.itertext()).replace("\u202f", "") for cell in row]


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        source = file.read()
    page = Page()
    page.feed(source)
    page.close()
    assert not page.open, f"never closed: {page.open}"
    assert len(set(page.ids)) == len(page.ids), "an id twice"
    assert set(page.links) <= set(page.ids), f"links to nowhere: {set(page.links) - set(page.ids)}"
    assert "default-src 'none'" in source.split("</head>")[0], "no policy"
    tree = xml.etree.ElementTree.fromstring(source)
    check_charts(tree, "The run was interrupted" in "".join(page.text))
    data = json.loads(page.data)
    if len(sys.argv) > 2:
        with open(sys.argv[2], encoding="utf-8") as file:
            assert data == json.load(file), "other data than --json"
    for row in data["results"]:
        rows = list(row_texts(tree, row["workload"], row["server"]))
        assert any(str(row["grants"]) in cells for cells in rows), f"no row for {row}: {rows}"
        assert all(len(cells) == len(rows[0]) for cells in rows)
    print("".join(page.text))


main()
