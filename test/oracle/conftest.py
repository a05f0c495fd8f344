import pytest

pytest.register_assert_rewrite("conversion", "decode", "graphs", "runtime")

from command import BINARY  # noqa: E402


def pytest_configure(config):
    if not BINARY.exists():
        pytest.exit(f"{BINARY} is not there: run make build, or name another with ONNXQUANT", returncode=2)
