"""verify finds harmful edits of codes, scales and zero points, and refuses no honest output."""
import pytest

from edits import tally


@pytest.mark.parametrize("count, seed", [(24, 3), pytest.param(400, 11, marks=pytest.mark.long)])
def test_edits(count, seed):
    r = tally(count, seed)
    assert r["harmful"] >= count // 4
    assert not r["alarms"] and not r["passed"], r
    assert len(r["passed_without_record"]) <= 0.02 * r["harmful"], r
