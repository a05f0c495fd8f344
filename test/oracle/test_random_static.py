"""Static activations of random graphs with outliers are better than those of quantize_static."""
import pytest

import random_static


@pytest.mark.long
def test_errors():
    """A dozen graphs; make random-static runs 100."""
    ours, theirs, worse = random_static.main(12)
    assert ours <= theirs / 2
    assert len(worse) <= 3, worse
