"""Every output has the bytes it had when checksums.txt was written."""
import pytest

import checksums
import grid

ROWS = list(checksums.rows())
WANT = checksums.stored()


def test_rows():
    assert [name for name, *_ in ROWS] == list(WANT), "make checksums"


@pytest.mark.sampled(8)
@pytest.mark.parametrize("row", grid.some(ROWS, 3), ids=lambda row: row[0])
def test_bytes(row):
    differences = checksums.differences(row, WANT.get(row[0], []))
    assert not differences, "\n".join(differences)
