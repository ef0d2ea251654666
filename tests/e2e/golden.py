"""Goldens: numbers that Python's PyTorch computes for a fixed seed, kept in goldens/ beside the test, since starting PyTorch on several
ranks costs more than what is tested. Where a file is of another release, or of a script that has changed, or missing, Python computes
anew and a warning says so. With --live it always does, and the file must have the same numbers.

Processors add up in another order, so a golden is for what is claimed within rounding (rounding.py). What must be the same bits, and
texts, errors and files, are compared with Python live.
"""
import json
import warnings

import torch
from safetensors.torch import load_file, save_file

import golden_file

# Larger tensors may be thinned.
SMALL = 30


class GoldenWarning(UserWarning):
    pass


class Oracle:
    """What Python gives: {name: tensor} of each rank. `is_live`: computed now."""

    def __init__(self, ranks, require, is_live=True, shapes=None, every=1):
        self.ranks, self.is_live, self._require, self._every = ranks, is_live, require, every
        self._shapes = shapes or [{name: tuple(tensor.shape) for name, tensor in rank.items()} for rank in ranks]

    def only(self, name):
        """The part of this name."""
        ranks, shapes = ([{name: rank[name]} for rank in each if name in rank] for each in (self.ranks, self._shapes))
        return Oracle(ranks, self._require, self.is_live, shapes, self._every)

    def compare(self, ours):
        """Requires the same names and shapes on each rank, and the test's `require` of each tensor."""
        assert len(ours) == len(self.ranks)
        for rank, (got, wanted, shapes) in enumerate(zip(ours, self.ranks, self._shapes)):
            assert got.keys() == wanted.keys(), f"rank {rank}"
            for name, tensor in wanted.items():
                assert tuple(got[name].shape) == shapes[name], f"rank {rank}: {name}"
                one, other = (got[name], tensor) if self.is_live else (thinned(got[name], self._every), tensor)
                self._require(f"rank {rank}: {name}", one, other)


def kept_places(count, every):
    """Of so many numbers. Every seventh, say, meets each row and column of a matrix whose sides are no multiples of seven."""
    return range(0, count, every if count > SMALL else 1)


def thinned(tensor, every):
    return tensor.flatten()[::kept_places(tensor.numel(), every).step]


def are_equal(one, other):
    return one is not None and one.dtype == other.dtype and torch.equal(one, other)


def packed(ranks, every):
    """(index, tensors): of each name and rank [dtype, sizes ...] of the numbers that come next, the number of an earlier rank that has
    the same, or nothing."""
    index, parts = {}, {}
    for name in sorted({name for rank in ranks for name in rank}):
        row = index[name] = []
        for number, rank in enumerate(ranks):
            tensor = rank.get(name)
            if tensor is None:
                row.append(None)
                continue
            twin = next((other for other in range(number) if are_equal(ranks[other].get(name), tensor)), None)
            if twin is not None:
                row.append(twin)
                continue
            dtype = str(tensor.dtype).removeprefix("torch.")
            row.append([dtype, *tensor.shape])
            parts.setdefault(dtype, []).append(thinned(tensor.detach(), every))
    return index, {dtype: torch.cat(each) for dtype, each in parts.items()}


def unpacked(index, tensors, every):
    """(ranks, shapes of the tensors before they were thinned)"""
    num_ranks = max(map(len, index.values()))
    ranks, shapes = [{} for _ in range(num_ranks)], [{} for _ in range(num_ranks)]
    used = dict.fromkeys(tensors, 0)
    for name, row in index.items():
        for number, entry in enumerate(row):
            if entry is None:
                continue
            if isinstance(entry, int):
                ranks[number][name], shapes[number][name] = ranks[entry][name], shapes[entry][name]
                continue
            dtype, *sizes = entry
            kept = len(kept_places(torch.Size(sizes).numel(), every))
            ranks[number][name] = tensors[dtype][used[dtype]:used[dtype] + kept]
            shapes[number][name] = tuple(sizes)
            used[dtype] += kept
    return ranks, shapes


class Goldens:
    """The fixture `golden` (conftest.py)."""

    def __init__(self, is_live=False, is_written=False, release=torch.__version__):
        self._is_live, self._is_written, self._release = is_live, is_written, release.split("+")[0]

    def __call__(self, test, compute, require, scripts, arguments=(), part="", every=1):
        """The Oracle of `test`, which is its __file__.

        compute(): runs Python and returns {name: tensor} of each rank.
        require(what, got, wanted): fails where two tensors are farther apart than rounding explains.
        scripts: what compute() runs; modules beside them that they import count, too. arguments: what it gives them.
        part: where a test has several goldens. every: 7 keeps every seventh number of tensors that have more than SMALL, for a small file.
        """
        path = golden_file.path_of(test, part)
        now = golden_file.origin_of(scripts, [*arguments, every], self._release)
        if self._is_written:
            ranks = compute()
            write(path, ranks, now, every)
            return Oracle(ranks, require)
        origin, index = golden_file.read_metadata(path) if path.exists() else (None, None)
        why = golden_file.why_outdated(origin, now) if origin else "there is none"
        if why:
            warnings.warn(f"{golden_file.shown(path)}: {why}. So Python computes; {golden_file.WRITER} {golden_file.shown(test)} writes it.",
                          GoldenWarning, stacklevel=2)
            return Oracle(compute(), require)
        ranks, shapes = unpacked(index, load_file(path), every)
        kept = Oracle(ranks, require, is_live=False, shapes=shapes, every=every)
        if not self._is_live:
            return kept
        ranks = compute()
        try:
            kept.compare(ranks)
        except AssertionError as error:
            raise AssertionError(f"{golden_file.shown(path)} is not what Python computes now, though release and scripts are the same. "
                                 f"Find out why; {golden_file.WRITER} {golden_file.shown(test)} writes it anew.\n{error}") from None
        return Oracle(ranks, require)


def write(path, ranks, origin, every):
    index, tensors = packed(ranks, every)
    path.parent.mkdir(exist_ok=True)
    save_file(tensors, path, {"golden": json.dumps({"origin": origin, "index": index}, separators=(",", ":"))})
