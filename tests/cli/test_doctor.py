import socket

import pytest
from tunesmith.machine.diagnosis import Check, diagnose
from tunesmith.tuning.measuring.tasks import Ran
from tunesmith.tuning.records.record import Status
from tunesmith.tuning.remote import diagnosis as remote_diagnosis

pytestmark = pytest.mark.usefixtures("kept_peaks")


def test_doctor_prints_every_check_and_tunes(run):
    outcome = run("doctor", "--json")
    names = [row["name"] for row in outcome.rows]
    assert names == [*(check.name for check in diagnose()), "a tiny tuning"]
    assert all(row["ok"] for row in outcome.rows) and outcome.status == 0
    assert outcome.rows[-1]["found"].startswith("3 ok in ")


def test_a_failing_tuning_ends_with_status_1(run, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no worker\nstarts")

    monkeypatch.setattr("tunesmith.tuning.tuner.tune", broken)
    outcome = run("doctor")
    assert outcome.status == 1
    assert "FAIL" in outcome.stdout and "RuntimeError: no worker starts" in outcome.stdout


def test_a_missing_compiler_is_found(run, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    outcome = run("doctor")
    assert outcome.status == 1 and "apt install g++" in outcome.stdout


def remote_checks(run, *words):
    outcome = run("doctor", "--json", *words)
    rows = {row["name"]: row for row in outcome.rows}
    return {
        name: row for name, row in rows.items() if "RPC" in name or " of " in name or " on " in name
    }, outcome


@pytest.fixture
def quick(monkeypatch):
    """Leave out what has nothing to do with servers."""
    monkeypatch.setattr("tunesmith.machine.diagnosis.diagnose", list)
    monkeypatch.setattr("tunesmith.cli.doctor._tiny_tuning", lambda: Check("a tiny tuning", True, "left out"))


def test_servers_are_looked_at_one_of_a_key(run, quick, rpc):
    checks, outcome = remote_checks(run, "--rpc-tracker", rpc.tracker, "--rpc-key", "single")
    assert list(checks) == [
        "RPC tracker's address",
        "RPC tracker's port",
        "RPC tracker",
        "RPC keys",
        "session on single",
        "TVM's FFI on single",
        "processor of single",
        "matmul on single",
    ]
    assert all(row["ok"] for row in checks.values()) and outcome.status == 0
    assert checks["RPC keys"]["found"] == "single: 1 servers, 1 free"
    assert checks["matmul on single"]["found"].startswith("right, ")


def test_a_tracker_that_is_not_there(run, quick):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        checks, outcome = remote_checks(run, "--rpc-tracker", f"127.0.0.1:{port}")
    assert outcome.status == 1 and list(checks) == ["RPC tracker's address", "RPC tracker's port"]
    row = checks["RPC tracker's port"]
    assert (row["ok"], row["found"]) == (False, f"nothing listens at 127.0.0.1:{port} (Connection refused)")
    assert row["advice"] == f"start a tracker there: python -m tvm.exec.rpc_tracker --port {port}"


def test_a_key_that_is_not_there(run, quick, rpc):
    checks, outcome = remote_checks(run, "--rpc-tracker", rpc.tracker, "--rpc-key", "singel")
    row = checks["RPC keys"]
    assert outcome.status == 1 and list(checks)[-1] == "RPC keys"
    assert (row["found"], row["advice"]) == ("unknown RPC key 'singel'", "did you mean single?")


def test_a_server_of_another_tvm_and_one_that_computes_wrongly(run, quick, rpc, monkeypatch):
    monkeypatch.setattr(remote_diagnosis, "_tvm_ffi_version", lambda: "0.0.1")
    monkeypatch.setattr(remote_diagnosis, "_ran", lambda runner, job: Ran(Status.WRONG_RESULT, "all is 0"))
    checks, outcome = remote_checks(run, "--rpc-tracker", rpc.tracker, "--rpc-key", "single")
    assert outcome.status == 1 and not checks["TVM's FFI on single"]["ok"]
    assert "pip install 'apache-tvm==" in checks["TVM's FFI on single"]["advice"]
    assert checks["matmul on single"]["found"] == "wrong_result: all is 0"


def test_what_is_no_tracker_is_refused(refused):
    assert refused("doctor", "--rpc-tracker", "host:99999").startswith("a port is a number from 1 to 65535")
    assert refused("doctor", "--rpc-key", "single") == (
        "--rpc-key is a key of a tracker: give --rpc-tracker as well"
    )
