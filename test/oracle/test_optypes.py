"""internal/optypes/optypes.txt against the schemas it is made from."""
import optypes


def test_table():
    assert optypes.FILE.read_text() == optypes.text(), "make optypes"
