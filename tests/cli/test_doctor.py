from tunesmith.machine.diagnosis import diagnose


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
