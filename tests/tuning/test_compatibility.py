import dataclasses
import json

import pytest
import tunesmith as ts
from tunesmith.machine.target import as_target, target_text
from tunesmith.tuning.records.compatibility import target_key
from tunesmith.tuning.records.compilation import best_schedule

BEST = "f57be17b9ed9"
ZEN = {
    "kind": "llvm",
    "mtriple": "x86_64-pc-linux-gnu",
    "mcpu": "znver4",
    "mattr": ["+avx512f", "+fma"],
    "num-cores": 8,
    "keys": ["cpu", "fast"],
    "vector-width": 512,
}
PHONE = {"kind": "llvm", "mtriple": "aarch64-linux-android", "mcpu": "cortex-a72", "num-cores": 4}
GPU = {"kind": "cuda", "arch": "sm_90", "max_threads_per_block": 1024, "host": ZEN}


def key(config, **changes):
    return target_key(json.dumps({**config, **changes}))


@pytest.mark.parametrize(
    "changes",
    [
        {"tag": "mine"},
        {"mtriple": "x86_64-conda-linux-gnu"},
        {"mtriple": "x86_64-linux-gnu"},
        {"mtriple": "amd64-unknown-linux-gnu"},
        {"mattr": ["+fma", "+avx512f", "+fma"]},
        {"keys": ["fast", "cpu"]},
        {"host": ZEN},
        {"host": {**ZEN, "tag": "mine", "mtriple": "x86_64-linux-gnu"}},
    ],
)
def test_another_spelling_is_the_same_target(changes):
    assert key(ZEN, **changes) == key(ZEN)


def test_order_and_spaces_of_the_text_do_not_matter():
    text = json.dumps(dict(reversed(ZEN.items())), indent=2)
    assert target_key(text) == key(ZEN)


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "c"},
        {"mcpu": "znver5"},
        {"mtriple": "i686-pc-linux-gnu"},
        {"mtriple": "x86_64-pc-windows-msvc"},
        {"mtriple": "x86_64-pc-linux-gnux32"},
        {"mattr": ["+avx512f"]},
        {"mattr": ["+avx512f", "-fma"]},
        {"num-cores": 4},
        {"keys": ["cpu"]},
        {"vector-width": 256},
        {"opt-level": 1},
        {"fast-math": True},
        {"host": {**ZEN, "mcpu": "nehalem"}},
        {"an option of tomorrow": 1},
    ],
)
def test_what_changes_code_or_fitness_is_another_target(changes):
    assert key(ZEN, **changes) != key(ZEN)


def test_an_option_left_out_is_another_target():
    for name in ZEN:
        assert target_key(json.dumps({n: v for n, v in ZEN.items() if n != name})) != key(ZEN)


def test_gpus_are_told_apart_and_their_hosts_spelled_freely():
    assert key(GPU) == key(GPU, host={**ZEN, "tag": "mine"})
    assert (
        len({key(GPU), key(GPU, arch="sm_80"), key(GPU, host=PHONE), key(GPU, max_threads_per_block=512)})
        == 4
    )


def test_other_architectures_names_are_one():
    assert key(PHONE) == key(PHONE, mtriple="arm64-linux-android")
    assert key(PHONE) != key(PHONE, mtriple="aarch64-linux-gnu")


@pytest.mark.parametrize("text", ["t1", "", "[1]", "{"])
def test_text_that_is_no_target_stands_for_itself(text):
    assert target_key(text) == text


def test_a_key_is_its_own_key():
    for config in (ZEN, PHONE, GPU):
        assert target_key(key(config)) == key(config)


def test_equal_targets_of_tvm_have_equal_keys_whatever_their_host_is_called():
    board = as_target("raspberry-pi/4b-aarch64")
    written = {name: value for name, value in json.loads(str(board)).items() if name not in ("tag", "host")}
    assert target_key(target_text(board)) == target_key(target_text(as_target(written)))


def test_a_record_is_applied_under_another_spelling_and_never_to_another_target(frozen):
    here = {"kind": "llvm", "mcpu": "znver5", "keys": ["cpu"], "num-cores": 2}
    spelled = target_text(as_target({**here, "mtriple": "x86_64-pc-linux-gnu"}))
    foreign = target_text(as_target({**here, "mtriple": "x86_64-pc-linux-gnu", "num-cores": 3}))
    matmul = ts.workload("matmul", m=16, n=16, k=16)
    with ts.Database(frozen) as database:
        best = database.get(BEST)
        assert best.target != spelled
        assert database.best(matmul.hash, spelled) == best
        assert (
            len(database.records(matmul.hash, spelled))
            == len(database.newer(matmul.hash, spelled, 0)[0])
            == 7
        )
        assert best_schedule(matmul, database, as_target(spelled))[1].record == best
        assert database.add(dataclasses.replace(best, id="twice", target=spelled)) == best
        assert best_schedule(matmul, database, as_target(foreign))[1].record is None
        database.confirm(matmul.hash, foreign, {})
        assert database.get(BEST).confirmed_secs
        database.confirm(matmul.hash, spelled, {})
        assert not database.get(BEST).confirmed_secs
