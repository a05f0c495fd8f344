"""verify finds single changes of converted models that change their outputs, without running them."""
from mutations import tally


def test_mutations():
    changed, missed, refused = tally(count=150, seed=1, each=5)
    assert sum(changed.values()) >= 30
    assert not missed and not refused, (missed, refused)
