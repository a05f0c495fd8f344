"""The site opens from a disk: links lead to files, nothing is loaded from elsewhere, and the search finds.

Usage: site.py FOLDER [CHROMIUM]
"""

import pathlib
import re
import subprocess
import sys

site, chromium = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
wrong = []
for page in site.rglob("*.html"):
    if page.name == "404.html":  # for web servers alone
        continue
    text = page.read_text()
    for kind, url in re.findall(r'(?:<(script|img|link)[^>]*?)?\s(?:href|src)="([^"#?]+)', text):
        if re.match(r"[a-z]+:|//", url):
            if kind:
                wrong.append(f"{page.relative_to(site)} loads {url}")
        elif not (page.parent / url).is_file():
            wrong.append(f"{page.relative_to(site)} links to {url}, which is no file")
if chromium and not wrong:
    page = f"{(site / 'log' / 'accuracy.html').as_uri()}?q=nvfp4"
    dom = subprocess.run([*chromium, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000", "--dump-dom", page],
                         capture_output=True, text=True, timeout=120).stdout
    if not re.search(r"\d+ matching documents", dom):
        wrong.append("the search finds nothing when the site is opened from a disk")
sys.exit("\n".join(wrong[:20]) or None)
