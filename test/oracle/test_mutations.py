"""verify finds single changes of converted models that change their outputs, without running them."""
from mutations import tally


def test_mutations():
    changed, missed = tally(count=150, seed=1, each=5)
    total = sum(changed.values())
    assert total >= 30
    assert len(missed) <= total * 0.01, missed
