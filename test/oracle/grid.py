"""What make test takes of grids of cases and settings. make test-all sets ONNXQUANT_ALL and takes all."""
import os

ALL = bool(os.environ.get("ONNXQUANT_ALL"))


def pairs(cases, *groups):
    """(case, setting): of each group of settings one for each case, in turn, so that all settings meet many cases."""
    cases = list(cases)
    if ALL:
        return [(c, s) for group in groups for s in group for c in cases]
    return [(c, list(group)[i % len(group)]) for group in groups for i, c in enumerate(cases)]


def turns(cases, settings):
    """(case, settings): for each case all settings, or one, in turn."""
    return [(c, list(settings) if ALL else [list(settings)[i % len(settings)]]) for i, c in enumerate(cases)]


def some(cases, every):
    """One case of so many."""
    return list(cases) if ALL else list(cases)[::every]
