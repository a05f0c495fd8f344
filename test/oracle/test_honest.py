"""verify refuses no honest conversion of a random graph; honest.py has many more, and counts."""
import pytest

from honest import SETTINGS, Count


@pytest.mark.parametrize("first, graphs", [(0, 8), pytest.param(8, 72, marks=pytest.mark.long)])
def test_random_graphs(first, graphs, tmp_path):
    count = Count()
    for i in range(first, first + graphs):
        count.graph(i, SETTINGS[i % len(SETTINGS)], tmp_path, records=[True])
    assert sum(count.verdicts.values()) > 0.9 * graphs and not count.alarms, (count.verdicts, count.alarms)
