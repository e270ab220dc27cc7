import pytest


@pytest.mark.parametrize(
    ("given", "missing"), [("--rpc-tracker", "--rpc-key"), ("--rpc-key", "--rpc-tracker")]
)
def test_a_tracker_and_a_key_belong_together(refused, given, missing):
    message = refused("tune", "matmul", "--shape", "m=8,n=8,k=8", given, "host")
    assert message == f"--rpc-tracker and --rpc-key belong together: give {missing} as well"


def test_tuning_on_a_tracker_that_is_not_there(refused):
    words = ("tune", "matmul", "--shape", "m=8,n=8,k=8", "--rpc-key", "board")
    assert "unknown host 'nowhere.invalid'" in refused(*words, "--rpc-tracker", "nowhere.invalid:9190")
