"""page.py PAGE: is a page whole in itself? Says what html.parser finds.

Every element is closed in order, nothing is at an address elsewhere, nothing
runs. Prints "bad [...], open [...], N images"; the tests of pages compare that.
"""
import html.parser
import sys

VOID = {"meta", "img", "br"}


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.stack, self.images, self.bad, self.ids, self.links = [], 0, [], set(), []

    def handle_starttag(self, tag, attrs):
        if tag == "img":
            self.images += 1
        for name, value in attrs:
            if name == "href" and value.startswith("#"):
                self.links.append(value[1:])
            elif name in ("src", "href") and not value.startswith("data:image/png;base64,"):
                self.bad.append("%s=%s" % (name, value))
            if name.startswith("on"):
                self.bad.append(name)
            if name == "id":
                self.ids.add(value)
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        if not self.stack or self.stack.pop() != tag:
            self.bad.append("</%s>" % tag)


text = open(sys.argv[1], encoding="utf-8").read()
page = Page()
page.feed(text)
page.close()
if "url(" in text or "@import" in text or "<script" in text:
    page.bad.append("loads or runs")
page.bad += ["#" + link for link in page.links if link not in page.ids]
print("bad %s, open %s, %d images" % (page.bad[:3], page.stack, page.images))
