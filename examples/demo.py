"""The main job of tunesmith, end to end, on the ResNet-50 that the onnx package ships.

Verify and bench three operators, tune one of them and the model's two heaviest convolutions, put the
records back into the model, run it in a new process, and compare its output with the one onnx ships.

Run it with ``make demo``. It exits with status 1 if anything is wrong.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import tunesmith as ts
from tabulate import tabulate
from tunesmith.integrate.running.contenders import has_onnxruntime
from tunesmith.integrate.samples import sample

TRIALS = 16
FAILURES = []  # what went wrong, in words
SUMMARY = []  # the rows of the closing table


def main():
    sys.stdout.reconfigure(line_buffering=True)  # in order with what other processes print
    with tempfile.TemporaryDirectory(prefix="tunesmith-demo-") as folder:
        check_installation()
        linear_relu = operators()
        shipped = sample("light_resnet50")
        model = ts.load_model(shipped.path)
        with ts.Database(Path(folder, "demo.db")) as database:
            tune(model, linear_relu, database)
            run(model, shipped, database, folder)
    heading("Summary")
    print(tabulate(SUMMARY, headers=["step", "ms", "GFLOP/s", "% of roofline", "output"], floatfmt=".2f"))
    for failure in FAILURES:
        print(f"FAILED: {failure}", file=sys.stderr)
    return 1 if FAILURES else 0


def check_installation():
    """Is everything there that tunesmith stands on? (On the command line: tunesmith doctor.)"""
    heading("1. Doctor")
    for check in ts.diagnose():
        print(f"{'ok  ' if check.ok else 'FAIL'}  {check.name}: {check.found} {check.advice}")
        require(check.ok, f"{check.name}: {check.found}; {check.advice}")


def operators():
    """Three operators: prove their schedules right, then time them. Returns the one to be tuned."""
    heading("2. Verify and bench")
    workloads = [
        ts.workload("matmul", m=512, n=512, k=512),
        ts.workload("linear_relu", m=128, n=3072, k=768),  # a transformer's feed-forward layer
        ts.workload("conv2d", n=1, h=28, w=28, ci=128, co=128, kh=3, kw=3, padding=1),  # ResNet-50's
    ]
    # Every schedule that applies, on random inputs, against NumPy in float64.
    for row in ts.verify(workloads):
        print(f"{row['operator']} with schedule {row['schedule']}: {'right' if row['ok'] else 'WRONG'}")
        require(row["ok"], f"{row['operator']} with schedule {row['schedule']}: {row['message']}")
    # The plain loop nest, the default schedule that needs no search, and NumPy.
    wanted = ("unscheduled", "default", "numpy")
    for row in ts.bench(workloads, wanted):
        step = f"{row['operator']} {row['implementation']}"
        summarize(step, row["median_s"], row["gflops"], row["roofline_fraction"], row["verified"])
    require(len(SUMMARY) == len(wanted) * len(workloads), "an implementation could not be timed")
    return workloads[1]


def tune(model, linear_relu, database):
    """Search for something faster than the default. Each trial is checked before its time counts."""
    heading("3. Tune")
    # A function of a model is a workload like any other; its own plain loop nest is the reference.
    convolutions = [w.workload for w in ts.extract_workloads(model) if "conv2d" in w.workload.name][:2]
    for result in ts.tune([linear_relu, *convolutions], trials=TRIALS, database=database):
        workload, best = result.workload, result.best
        require(best is not None, f"no candidate of {workload.name} ran and was right")
        if best is not None:
            least = ts.roofline_seconds(workload.flops, workload.bytes_moved, workload.dtype)
            rate = workload.flops / best.median_s / 1e9
            summarize(f"{workload.name} tuned", best.median_s, rate, least / best.median_s, best.verified)
    # The best record, as a function on NumPy arrays.
    kernel = ts.compile(linear_relu, database)
    inputs = [np.random.default_rng(0).normal(size=a.shape).astype(a.dtype) for a in linear_relu.inputs]
    right = np.allclose(kernel(*inputs), linear_relu.reference(*inputs), rtol=1e-4, atol=1e-3)
    print(f"{kernel}: {'right' if right else 'WRONG'}")
    require(right, "the tuned linear_relu is wrong")


def run(model, shipped, database, folder):
    """Put the records back, compile the model to one file, and run that file in a new process."""
    heading("4. Apply, compile, run")
    default = ts.compile_model(model)
    tuned = ts.compile_model(model, database=database, output=Path(folder, "resnet50.tsm"))
    applied = [choice for choice in tuned.choices if choice.origin == "record"]
    for choice in applied:
        print(f"{choice.function}: {choice.schedule}, {choice.reason}")
    require(len(applied) >= 2, f"2 records were to be applied to the model, {len(applied)} were")
    comparison = ts.compare(default, tuned, shipped.inputs)
    require(comparison.ok, "the tuned model's outputs differ from the default's")
    print(f"{comparison.speedup:.2f}x as fast as with default schedules only")

    outputs = run_in_new_process(Path(folder, "resnet50.tsm"), shipped.inputs, folder)
    checks = ts.compare_outputs(outputs, shipped.outputs)
    right = all(check.ok for check in checks)
    require(right, f"the package's output is not the shipped one: {[check.message for check in checks]}")
    timed = (("default", default, comparison.before), ("tuned", tuned, comparison.after))
    for name, package, contender in timed:
        seconds = contender.median_s
        same = all(c.ok for c in ts.compare_outputs(package.run(shipped.inputs), shipped.outputs))
        summarize(f"light_resnet50 {name}", seconds, *model_rates(model, seconds), same)
    compare_with_onnxruntime(model, tuned, shipped)


def compare_with_onnxruntime(model, tuned, shipped):
    """Time the library that a user would run the file with, if it is installed (make bench installs it)."""
    if not has_onnxruntime():
        print("ONNX Runtime is not installed: no comparison with it")
        return
    comparison = ts.compare(tuned, shipped.path, shipped.inputs)
    seconds = comparison.after.median_s
    summarize("light_resnet50 ONNX Runtime", seconds, *model_rates(model, seconds), comparison.ok)
    low, high = comparison.interval
    print(f"ONNX Runtime is {comparison.speedup:.2f}x as fast as the tuned package ({low:.2f} to {high:.2f})")


def run_in_new_process(package, inputs, folder):
    """Run a package with the command that a user would type, and read its outputs."""
    given, found = Path(folder, "inputs.npz"), Path(folder, "outputs.npz")
    np.savez(given, **inputs)
    command = [Path(sys.executable).with_name("tunesmith"), "run", package, "--print-time"]
    subprocess.run([*command, "--inputs", given, "--outputs", found], check=True)
    with np.load(found) as arrays:
        return dict(arrays)


def model_rates(model, seconds):
    """Return GFLOP/s and the fraction of the roofline: that of all its functions, one after another."""
    parts = [(w.workload, w.calls) for w in ts.extract_workloads(model)]
    flops = sum(w.flops * calls for w, calls in parts)
    least = sum(ts.roofline_seconds(w.flops, w.bytes_moved, w.dtype) * calls for w, calls in parts)
    return flops / seconds / 1e9, least / seconds


def summarize(step, seconds, gflops, fraction, right):
    """Note a row of the closing table."""
    print(f"{step}: {seconds * 1e3:.3f} ms")
    SUMMARY.append([step, seconds * 1e3, gflops, 100 * fraction, "right" if right else "WRONG"])
    require(right, f"{step}: wrong output")


def require(ok, otherwise):
    """Note a failure; the demo goes on, and ends with status 1."""
    if not ok:
        FAILURES.append(otherwise)


def heading(text):
    print(f"\n== {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
