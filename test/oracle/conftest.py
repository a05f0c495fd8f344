import random

import pytest

pytest.register_assert_rewrite("conversion", "decode", "graphs", "runtime")

from command import BINARY  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "long: for make test-long, not for make test")
    config.addinivalue_line("markers", "sampled(every): one case of so many, a fixed random choice, is for make test, the others are long")
    if not BINARY.exists():
        pytest.exit(f"{BINARY} is not there: run make build, or name another with ONNXQUANT", returncode=2)


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items):
    cases = {}
    for item in items:
        if item.get_closest_marker("sampled"):
            cases.setdefault((item.path, item.originalname), []).append(item)
    for (_, name), of in cases.items():
        every, = of[0].get_closest_marker("sampled").args
        random.Random(name).shuffle(of)
        for item in of[-(-len(of) // every):]:
            item.add_marker("long")
