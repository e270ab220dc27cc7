"""The loop nests of the default schedules, as text. ``pytest --update-golden`` writes them anew."""

from pathlib import Path

import pytest
import tunesmith as ts
from tunesmith.machine.target import as_target

GOLDENS = Path(__file__).parent / "goldens"

# No machine calls itself by this name, so its caches are the stated defaults everywhere.
TARGET = as_target(
    {"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-unknown-linux-gnu", "num-cores": 2}
)

RESNET_3X3 = {"n": 1, "h": 56, "w": 56, "ci": 64, "co": 64, "kh": 3, "kw": 3, "padding": 1}
ODD_NCHW = {
    **{"n": 2, "h": 35, "w": 39, "ci": 32, "co": 45, "kh": 3, "kw": 3},
    **{"layout": "NCHW", "bias": 1, "relu": 1},
}
NARROW_NCHW = {**ODD_NCHW, "w": 7}
WORKLOADS = {
    "matmul_square": ts.workload("matmul", m=1024, n=1024, k=1024),
    "matmul_primes": ts.workload("matmul", m=127, n=131, k=137),
    "matmul_few_rows": ts.workload("matmul", m=4, n=1000, k=2048),
    "linear_relu": ts.workload("linear_relu", m=128, n=3072, k=768),
    "linear_relu_one_row": ts.workload("linear_relu", m=1, n=4096, k=4096),
    "conv2d": ts.workload("conv2d", **RESNET_3X3, stride=2),
    "conv2d_winograd": ts.workload("conv2d", **RESNET_3X3, bias=1, relu=1),
    "conv2d_channel_lines": ts.workload("conv2d", **ODD_NCHW, padding=1, stride=2),
    "conv2d_cut_lines_nchw": ts.workload("conv2d", **NARROW_NCHW, padding=1),
    "conv2d_flat_rows_nchw": ts.workload("conv2d", **NARROW_NCHW),
    "add": ts.workload("add", m=3136, n=256),
}

SHOWN = ("for ", "with T.sblock", "T.where", "T.sblock_attr")


def nest(schedule):
    """Return the loops, blocks, conditions and stores of a schedule as indented text."""
    lines = schedule.mod.script(syntax_sugar=True).splitlines()
    start = next(i for i, line in enumerate(lines) if 'with T.sblock("root")' in line) + 1
    kept = [line for line in lines[start:] if line.strip().startswith(SHOWN) or _is_store(line.strip())]
    return "\n".join(line[8:] for line in kept) + "\n"


def _is_store(line):
    return "] = " in line and not line.startswith("T.") and "T.let[" not in line


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_default_nest_is_the_golden_one(name, request):
    schedule, rule = ts.apply_default(WORKLOADS[name].func, TARGET)
    found = f"{rule.name}\n{nest(schedule)}"
    golden = GOLDENS / f"{name}.txt"
    if request.config.getoption("--update-golden"):
        golden.write_text(found)
    assert golden.read_text() == found, "if the change is meant: pytest --update-golden, and read the diff"


def test_every_golden_has_its_workload():
    assert {path.stem for path in GOLDENS.glob("*.txt")} == set(WORKLOADS)
