import pytest

SHAPE = "m=8,n=16,k=4"


def test_every_schedule_is_verified(run):
    outcome = run("verify", "matmul", "--shape", SHAPE, "--shape", "m=1,n=1,k=1", "--json")
    assert outcome.status == 0
    assert {row["schedule"] for row in outcome.rows} >= {"matmul", "general"}
    assert all(row["ok"] for row in outcome.rows)
    assert {row["shape"]["m"] for row in outcome.rows} == {1, 8}


def test_a_wrong_kernel_ends_with_status_1(run, user_file):
    outcome = run("verify", f"{user_file}:TREBLE", "--schedule", "general")
    assert outcome.status == 1
    assert "WRONG" in outcome.stdout and "elements are wrong" in outcome.stdout


def test_without_a_shape_the_examples_are_verified(run, user_file):
    outcome = run("verify", f"{user_file}:DOUBLE", "--schedule", "general", "--json")
    assert outcome.status == 0 and [row["shape"] for row in outcome.rows] == [{"n": 5}]
    assert "1 examples" in outcome.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["matmull"], "unknown operator 'matmull'"),
        (["matmul", "--shape", SHAPE, "--schedule", "generall"], "did you mean general?"),
        (["matmul", "--shape", SHAPE, "--target", "raspberry-pi/4b-aarch64"], "cannot run on this machine"),
    ],
)
def test_bad_input_is_one_line(refused, words, message):
    assert message in refused("verify", *words)
