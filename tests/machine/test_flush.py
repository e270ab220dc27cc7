from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tunesmith.machine import flush


@pytest.fixture
def arrays(monkeypatch):
    """Return what a flush of a machine with two threads and small caches reads, and its sums."""

    def of(l2_bytes, l3_bytes, sharers, available=1 << 40):
        small = replace(here, l2_bytes=l2_bytes, l3_bytes=l3_bytes)
        found = []
        monkeypatch.setattr(flush, "facts", lambda target: small)
        monkeypatch.setattr(flush, "_sharers", lambda threads: sharers)
        monkeypatch.setattr(flush.tvm.runtime, "num_threads", lambda: 2)
        monkeypatch.setattr(flush.psutil, "virtual_memory", lambda: SimpleNamespace(available=available))
        monkeypatch.setattr(flush, "as_tensor", lambda array: found.append(array) or as_tensor(array))
        flush.cache_flush.__wrapped__()()
        return found

    here, as_tensor = flush.facts(flush.host_target()), flush.as_tensor
    return of


KIB = 1024


def test_flush_reads_far_more_than_the_last_cache(arrays):
    read, sums = arrays(16 * KIB, 64 * KIB, sharers=2)
    assert read.nbytes == 8 * 64 * KIB and len(read) == 2
    assert np.all(sums == 0)


def test_a_flush_takes_as_long_as_reading_that_from_memory(arrays, monkeypatch):
    (read, _) = arrays(16 * KIB, 64 * KIB, sharers=2)
    monkeypatch.setattr(flush, "measured_peaks", lambda: SimpleNamespace(memory_gbps=2.0))
    assert flush.flush_seconds() == read.nbytes / 2e9


def test_each_last_cache_and_each_second_cache_counts(arrays):
    assert arrays(16 * KIB, 64 * KIB, sharers=1)[0].nbytes == 2 * 8 * 64 * KIB
    assert arrays(64 * KIB, 64 * KIB, sharers=2)[0].nbytes == 2 * 8 * 64 * KIB


def test_flush_leaves_memory_to_others(arrays):
    assert arrays(16 * KIB, 64 * KIB, sharers=2, available=256 * KIB)[0].nbytes == 64 * KIB


def test_cpus_that_share_a_cache_are_counted(monkeypatch, tmp_path):
    file = tmp_path / "shared_cpu_map"
    monkeypatch.setattr(flush, "_SHARERS", file)
    assert flush._sharers(5) == 5
    for text, count in (("00000000,00000003\n", 2), ("ff,000000ff\n", 16), ("", 5)):
        file.write_text(text)
        assert flush._sharers(5) == count
