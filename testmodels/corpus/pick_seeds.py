"""Picks the small models of structures/ and hostile/ as seeds for fuzzing.

    python pick_seeds.py build/corpus testmodels/seeds.zip

Of models that are the same, the first is taken. Same corpora, same bytes.
"""
import sys
import zipfile
from pathlib import Path

corpus, out = Path(sys.argv[1]), Path(sys.argv[2])
LARGEST = {"structures": 1200, "hostile": 640}  # bytes
SKIP = {"trunc", "random", "cut"}  # the fuzzer makes these by itself

seen = set()
with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
    for folder, largest in LARGEST.items():
        for path in sorted((corpus / folder).rglob("*.onnx")):
            data = path.read_bytes() if path.stat().st_size <= largest else b""
            if not data or data in seen or SKIP & set(path.parts):
                continue
            seen.add(data)
            z.writestr(zipfile.ZipInfo(str(path.relative_to(corpus))), data, zipfile.ZIP_DEFLATED)
print(len(seen), "models,", out.stat().st_size, "bytes")
