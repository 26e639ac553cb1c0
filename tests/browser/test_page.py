"""The page of `attn inspect` in a real browser: test_page.py ATTN [FOLDER or - [TEST...]]. Chromium of Debian, driven by playwright.
Each function test_* is one test; the last line counts them. With FOLDER, screenshots at three widths in both schemes are
written there."""
import functools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
import xml.dom.minidom

from playwright.sync_api import sync_playwright

ATTN = sys.argv[1]
PICTURES = sys.argv[2] if len(sys.argv) > 2 and sys.argv[2] != "-" else None
ONLY = sys.argv[3:]  # names of tests; none: all
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "attn")
MODEL = os.path.join(CACHE, "SmolLM2-135M-Instruct.Q4_1.gguf")
ENCODER = os.path.join(CACHE, "all-MiniLM-L6-v2")
WORK = tempfile.mkdtemp()
BRIDGE = "The bridge was closed because it"


class Skip(Exception):
    pass


@functools.lru_cache(None)
def page_of(text, *options):
    """The path of the page for a text; the model must be there."""
    model = options[options.index("--model") + 1] if "--model" in options else MODEL
    if not os.path.exists(model):
        raise Skip("the model is not here: %s" % model)
    path = os.path.join(WORK, "page%d.html" % len(os.listdir(WORK)))
    done = subprocess.run([ATTN, "inspect", "-o", path, *options, "-"], input=text.encode(), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return path


def with_data(path, change):
    """A copy of a page whose data `change` has altered, written as the library escapes it."""
    html = open(path, encoding="utf-8").read()
    start = html.index('id="data">') + len('id="data">')
    end = html.index("</script>", start)
    data = json.loads(html[start:end])
    change(data)
    text = re.sub("[<>&]", lambda m: "\\u%04x" % ord(m.group()), json.dumps(data, ensure_ascii=False))
    copy = path.replace(".html", "-changed.html")
    with open(copy, "w", encoding="utf-8") as file:
        file.write(html[:start] + text + html[end:])
    return copy


class Tab:
    """A page opened at a width; every message of the console and every request is kept."""

    def __init__(self, browser, path, width=1200, scheme="light", link=""):
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.wrong = []
        self.page.on("console", lambda m: self.wrong.append("%s: %s" % (m.type, m.text)))
        self.page.on("pageerror", lambda e: self.wrong.append(str(e)))
        self.page.on("dialog", lambda d: (self.wrong.append("dialog: " + d.message), d.dismiss()))
        self.page.on("request", lambda r: r.url.startswith(("file:", "data:", "blob:")) or self.wrong.append(r.url))
        self.page.goto("file://" + os.path.abspath(path) + link)
        self.page.wait_for_selector("body[data-ready]", timeout=20000)

    def __enter__(self):
        return self.page

    def __exit__(self, kind, *_):
        self.context.close()
        assert kind or not self.wrong, self.wrong


def ink(page, canvas):
    """How many different colours a canvas shows: an empty one has one."""
    return page.evaluate("""id => { const c = document.getElementById(id), copy = document.createElement('canvas'); copy.width = c.width;
        copy.height = c.height; const g = copy.getContext('2d', {willReadFrequently: true}); g.drawImage(c, 0, 0);
        const d = g.getImageData(0, 0, c.width, c.height).data, seen = new Set(); for (let i = 0; i < d.length; i += 4) seen.add(d[i] << 16 | d[i+1] << 8 | d[i+2]);
        return seen.size; }""", canvas)


def fits(page):
    return page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")


def test_every_view_draws(browser):
    path = page_of(BRIDGE, "--layer", "13", "--head", "8")
    with Tab(browser, path) as page:
        for canvas in ("thumbs", "matrix", "layers", "legend"):
            assert ink(page, canvas) > 3, canvas
        assert ".77" in page.inner_text("#lines") and "bridge" in page.inner_text("#lines")
        assert page.locator("#edges tbody tr").count() > 20
        assert "no cause" in page.inner_text(".caution") and "Spearman" in page.inner_text("#measures")
        assert page.locator(".tok").count() == 6


def test_hover_click_keys_links(browser):
    path = page_of(BRIDGE)
    with Tab(browser, path, link="#layer=13&head=8&at=5") as page:
        assert page.input_value("#layer") == "13" and page.input_value("#head") == "8"
        box = page.locator("#matrix").bounding_box()
        left = page.evaluate("Math.min(92, document.getElementById('matrix').clientWidth * .25)")
        cell = (box["width"] - left) / 6
        page.mouse.move(box["x"] + left + 1.5 * cell, box["y"] + left + 5.5 * cell)
        assert "0.77" in page.inner_text("#tip") and "bridge" in page.inner_text("#tip"), page.inner_text("#tip")
        page.mouse.click(box["x"] + left + 1.5 * cell, box["y"] + left + 2.5 * cell)
        assert page.input_value("#at") == "2"
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowUp")
        page.keyboard.press("]")
        page.keyboard.press("+")
        assert page.evaluate("state.zoom") > 1
        page.keyboard.press("0")
        assert page.evaluate("state.zoom") == 1
        page.keyboard.press("d")
        assert page.evaluate("isDark()")
        page.keyboard.press("c")
        assert "linear" in page.inner_text("#root")
        page.wait_for_timeout(120)
        assert (page.input_value("#at"), page.input_value("#layer"), page.input_value("#head")) == ("3", "12", "8")
        assert "layer=12" in page.url and "at=3" in page.url
        page.locator(".tok").nth(1).click()
        assert page.input_value("#at") == "1"
        page.locator("#edges tbody tr").first.click()
        page.locator("#thumbs").click(position={"x": 60, "y": 60})
        assert page.input_value("#layer") in "012"
        page.locator("#layers").hover(position={"x": 60, "y": 120})
        assert "largest weight of any head" in page.inner_text("#tip")
        page.locator("#thumbs").hover(position={"x": 60, "y": 60})
        assert "mean distance" in page.inner_text("#tip")
        page.locator("#layers").click(position={"x": 60, "y": 120})
        page.locator("#lines text.pick").last.click()
        page.evaluate("location.hash = '#layer=99&head=x&at=4'")  # while the last click is not in the address yet
        page.wait_for_function("document.getElementById('layer').value === '29' && document.getElementById('at').value === '4'",
                               timeout=5000)


def test_paired_prompt(browser):
    """The page names the other prompt and its outcome; a weight that was cut says under the pointer what that did."""
    with Tab(browser, page_of(BRIDGE, "--pair", "The road was closed because it", "--exact", "4", "--sample", "6")) as page:
        said = page.inner_text("#pair")
        assert "road" in said and "there the outcome is" in said and page.inner_text("#pair b").endswith("road"), said
        page.locator("#edges tbody tr").first.click()
        text = page.evaluate("(e => readingText(e.layer, e.head, e.query, e.key))(data.measures.edges[0])")
        cells = page.locator("#edges tbody tr").first.locator("td").all_inner_texts()
        assert "; cut: knockout %s, removal %s" % (cells[7], cells[8]) in text, (text, cells)
        assert "cut" not in page.evaluate("readingText(0, 0, 1, 0)") or page.evaluate(
            "data.measures.edges.some(e => e.layer === 0 && e.head === 0 && e.query === 1 && e.key === 0)")


def downloaded(page, button):
    with page.expect_download() as got:
        page.click(button)
    return open(got.value.path(), encoding="utf-8").read()


def test_exports(browser):
    with Tab(browser, page_of(BRIDGE), link="#layer=13&head=8&at=5") as page:
        rows = downloaded(page, "#matrixcsv").splitlines()
        assert rows[0].startswith("layer,head,query") and len(rows) == 22  # a triangle of 6
        assert abs(float([r for r in rows if r.startswith('13,8,5,') and ',1,"' in r][0].split(",")[-1]) - 0.77) < 0.006
        lines = downloaded(page, "#linescsv")
        assert '"reads",5," it",1," bridge",0.7' in lines and '"is read by",5,' in lines
        assert len(downloaded(page, "#thumbscsv").splitlines()) == 271
        assert len(downloaded(page, "#layerscsv").splitlines()) > 270 * 3
        assert "knockout_kl" in downloaded(page, "#measurescsv")
        for view, least in (("matrix", 22), ("lines", 1), ("layers", 180), ("thumbs", 1)):
            svg = downloaded(page, "#%ssvg" % view)
            parsed = xml.dom.minidom.parseString(svg)
            assert len(parsed.getElementsByTagName("rect")) >= least, view
            assert view == "thumbs" or "bridge" in svg or "it" in svg


def test_two_thousand_tokens(browser):
    words = "the river bank old bridge was closed because water rose over stone walls and people waited there".split()
    rng = random.Random(4)
    path = page_of(" ".join(rng.choice(words) for _ in range(2000)), "--no-measures")
    size = os.path.getsize(path)
    assert size < 8e6, size
    with Tab(browser, path) as page:
        # performance.now() counts from the start of the navigation; an answer is there when the next frame is
        opened = page.evaluate("performance.getEntriesByName('ready')[0].startTime")
        took = page.evaluate("""async () => { const frame = () => new Promise(r => requestAnimationFrame(r)); await frame();
            for (let i = 0; i < 15; i++) { const button = document.querySelectorAll('.tok')[40 + 30 * i]; performance.mark('click');
            button.click(); document.body.offsetHeight; await frame(); performance.measure('answer', 'click'); await new Promise(r => setTimeout(r, 60)); }
            return performance.getEntriesByName('answer').map(m => m.duration).sort((a, b) => a - b); }""")
        print("  2,000 tokens: %.1f MB, opened in %.0f ms; a click is answered in %.0f ms (fastest), %.0f (median), %.0f (slowest of 15)"
              % (size / 1e6, opened, took[0], took[7], took[-1]))
        assert took[0] < 100  # the fastest: this machine may be shared
        assert ink(page, "matrix") > 20 and ink(page, "layers") > 20 and fits(page)
        assert page.evaluate("map => maps[0].layers.every(l => l !== null)", None)  # all rows have been read meanwhile


def test_focus_of_a_long_text(browser):
    """The head asked for has every row and 16 bits though the others are rounded."""
    rng = random.Random(5)
    path = page_of(" ".join(rng.choice(["river", "bank", "old", "stone"]) for _ in range(700)), "--no-measures", "--layer", "3", "--head", "2")
    with Tab(browser, path) as page:
        kept = page.evaluate("[focus.exact, maps[0].exact, focus.n_rows, data.tokens.length]")
        assert kept == [True, False, kept[3], kept[3]], kept
        a, b = page.evaluate("""[weightOf(maps[0], 3, 2, 400, 0), maps[0].rows(3) && (() => { const m = maps[0], at = 2 * m.n_rows + 400, r = m.rows(3);
            return r.keys[r.starts[at]] === 0 ? r.weights[r.starts[at]] : null; })()]""")
        assert b is None or abs(a - b) <= 0.015 * a, (a, b)


HOSTILE = "<script>window.hit=1</script> \"'><img src=x onerror=window.hit=1> </script> \x01\x1b[31m \u202egnp\u2028 ${hit} `&amp; שלום 😀"


def test_hostile_text(browser):
    path = page_of(HOSTILE)
    for width in (360, 1200):
        with Tab(browser, path, width) as page:
            assert page.evaluate("window.hit") is None and page.locator("img").count() == 0
            assert fits(page) and page.title().startswith("attn: <script>")
            assert "\u202e" not in page.inner_text("#tokens") and "␛" in page.inner_text("#tokens")

    def change(data):  # tokens that no tokenizer makes
        data["tokens"][0] = "<img src=x onerror=window.hit=1>" * 32768
        data["tokens"][1] = "</script><script>window.hit=1</script>"
        data["tokens"][2] = "\u202e\u2066\x00\x07"
        data["title"] = "x" * 100000
    with Tab(browser, with_data(path, change), 360) as page:
        assert page.evaluate("window.hit") is None and page.locator("img").count() == 0 and fits(page)
        page.locator(".tok").nth(1).click()
        assert page.evaluate("window.hit") is None and fits(page)


def test_scripts_and_widths(browser):
    path = page_of("Café 東京 😀 שלום עולם مرحبا\n\tDer Fluss e\u0301 👩‍👩‍👧", "--layer", "13", "--head", "8")
    for width in (360, 800, 1400):
        for scheme in ("light", "dark"):
            with Tab(browser, path, width, scheme) as page:
                assert fits(page), (width, scheme)
                assert page.evaluate("document.documentElement.classList.contains('dark')") == (scheme == "dark")
                assert ink(page, "thumbs") > 10
    with Tab(browser, page_of("הגשר נסגר כי הוא היה ישן", "--no-measures")) as page:
        assert page.evaluate("document.getElementById('tokens').dir") == "rtl"
    if PICTURES:
        bridge = page_of(BRIDGE, "--layer", "13", "--head", "8")
        for width in (360, 800, 1400):
            for scheme in ("light", "dark"):
                with Tab(browser, bridge, width, scheme) as page:
                    page.screenshot(path="%s/inspect-%d-%s.png" % (PICTURES, width, scheme), full_page=True)


def test_encoder_page(browser):
    """An encoder reads both ways; its outcome is its embedding."""
    path = page_of("A cat sat on the mat", "--model", ENCODER, "--exact", "4", "--sample", "6", "--heads")
    with Tab(browser, path) as page:
        assert "embedding" in page.inner_text("#measures") and page.locator("#heads tbody tr").count() == 30
        assert page.evaluate("maps[0].causal") is False and ink(page, "matrix") > 10
        later = page.evaluate("Array.from(readRow(maps[0], state.layer, state.head, 1).keys).some(k => k > 1)")
        assert later and page.locator("#edges tbody tr").count() >= 10


def trained_on_pairs():
    """A small encoder-decoder with its own vocabulary, trained for a moment."""
    folder = os.path.join(WORK, "pairs")
    pairs = os.path.join(WORK, "pairs.tsv")
    with open(pairs, "w") as file:
        file.writelines("the old bridge number %d\tbridge old %d\n" % (i % 17, i % 17) for i in range(200))
    subprocess.run([ATTN, "train", pairs, "--arch", "encdec", "-o", folder, "--layers", "2", "--heads", "2", "--width", "32", "--context", "64",
                    "--vocab", "300", "--steps", "40", "--batch", "4", "--threads", "1"], check=True, capture_output=True)
    return folder


def test_encoder_decoder_page(browser):
    """The three kinds of attention: what the encoder reads, what the decoder reads of itself, and of the encoder's text."""
    path = page_of("the old bridge number 3", "--model", trained_on_pairs(), "--target", "bridge old 3", "--exact", "4", "--sample", "6", "--heads")
    with Tab(browser, path) as page:
        for kind in ("0", "1", "2"):
            page.select_option("#map", kind)
            assert ink(page, "matrix") > 3 and "map=" + kind in page.evaluate(
                "new Promise(r => setTimeout(() => r(location.hash), 120))")
        n = page.evaluate("data.tokens.length")
        assert page.evaluate("maps[2].n_keys") == n and page.locator("#source .tok").count() == n and page.is_visible("#sourcebox")
        assert page.evaluate("maps[0].causal") is False and page.evaluate("maps[1].causal") is True
        kinds = page.locator("#heads tbody tr td:first-child").all_inner_texts()
        assert len(kinds) == 12 and len(set(kinds)) == 3, kinds
        page.locator("#source .tok").nth(1).click()
        assert "key=1" in page.evaluate("new Promise(r => setTimeout(() => r(location.hash), 120))")
        page.locator("h1").click()
        page.keyboard.press("m")
        assert page.input_value("#map") == "0" and not page.is_visible("#sourcebox")


def main():
    passed, failed, skipped = 0, 0, 0
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, test in [(n, t) for n, t in globals().items() if n.startswith("test_") and (not ONLY or n in ONLY)]:
            try:
                test(browser)
                passed += 1
                print("ok      " + name, flush=True)
            except Skip as reason:
                skipped += 1
                print("SKIPPED %s: %s" % (name, reason))
            except Exception:
                failed += 1
                traceback.print_exc(file=sys.stdout)
                print("FAILED  " + name, flush=True)
        browser.close()
    shutil.rmtree(WORK)
    print("%d passed, %d failed, %d skipped" % (passed, failed, skipped))
    return 1 if failed else 0


sys.exit(main())
