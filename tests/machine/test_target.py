"""Targets by every way to name them, and one line for each wrong one."""

import json

import pytest
from tunesmith.machine.errors import InputError
from tunesmith.machine.process import usable_cpus
from tunesmith.machine.target import as_target, host_target, target_text
from tvm.target import Target, codegen

SERVER = {"kind": "llvm", "mcpu": "haswell", "num-cores": 4}


def test_host_is_this_cpu_with_its_cores():
    host = host_target()
    assert host.attrs["mcpu"] == codegen.llvm_get_system_cpu()
    assert host.attrs["num-cores"] == usable_cpus()
    assert as_target("host") is host


def test_every_way_to_write_a_target_means_the_same(tmp_path):
    file = tmp_path / "server.json"
    file.write_text(json.dumps(SERVER))
    ways = [SERVER, json.dumps(SERVER), f"  {json.dumps(SERVER)}\n", str(file), file, Target(SERVER)]
    texts = {target_text(as_target(way)) for way in ways}
    assert len(texts) == 1


def test_target_text_is_canonical_and_reads_back():
    for target in (host_target(), as_target("raspberry-pi/4b-aarch64"), as_target("nvidia/nvidia-a100")):
        text = target_text(target)
        assert target_text(as_target(text)) == text
        assert list(json.loads(text)) == sorted(json.loads(text))


def test_cores_and_triple_are_filled_in():
    target = as_target({"kind": "llvm", "mcpu": "haswell"})
    assert target.attrs["num-cores"] == usable_cpus()
    assert target.attrs["mtriple"] == codegen.llvm_get_system_triple()


def test_what_a_user_says_stays():
    assert as_target(SERVER).attrs["num-cores"] == 4
    arm = as_target({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1"})
    assert arm.attrs["mtriple"] == "aarch64-linux-gnu"
    assert as_target("aws/cpu/c5.large").attrs["num-cores"] == 1


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("lvm", "unknown target 'lvm'; did you mean llvm?"),
        ("nvidia/nvidia-a1000", "unknown target 'nvidia/nvidia-a1000'; did you mean nvidia/nvidia-a100"),
        ("", "unknown target ''; there are: "),
        (None, "unknown target 'None'; there are: "),
        (
            "llvm -mcpu=znver4",
            'a target with options is written as JSON: .* write {"kind": "llvm", "mcpu"',
        ),
        ("{bad", "target is no valid JSON: "),
        ('{"mcpu": "znver4"}', 'target must be a JSON object with a "kind"'),
        ({"kind": "llvm", "mcpu": "znvr4"}, "unknown mcpu 'znvr4'; did you mean znver4"),
        ({"kind": "llvm", "mcpu": "?"}, r"unknown mcpu '\?' for .*; this machine's is"),
        ({"kind": "llvm", "mtriple": "foo-bar"}, "unknown architecture in mtriple 'foo'"),
        ({"kind": "llvm", "num_cores": 2}, "TVM refuses the target: Unknown config option 'num_cores'"),
        ({"kind": "llvm", "num-cores": 0}, "num-cores must be at least 1: num-cores=0"),
        ({"kind": "llvm", "num-cores": "2"}, "TVM refuses the target: Option 'num-cores'"),
        ({"kind": "lvm"}, 'TVM refuses the target: Target kind "lvm" is not defined'),
        ("missing.json", "cannot read the target file missing.json: No such file"),
    ],
)
def test_a_wrong_target_gets_one_line(wanted, message):
    with pytest.raises(InputError, match=message) as caught:
        as_target(wanted)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_target(tmp_path):
    file = tmp_path / "model.onnx"
    file.write_bytes(b"\xff\xfe\x00binary")
    with pytest.raises(InputError, match=r"cannot read the target file .*: it is no text"):
        as_target(str(file))
