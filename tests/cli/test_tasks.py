import pytest
import tunesmith as ts
from tunesmith.cli.tasks import chosen_tasks


@pytest.mark.parametrize(
    ("expression", "expected"),
    [("all", [0, 1, 2, 3]), ("2", [2]), ("3,0", [0, 3]), ("1-2", [1, 2]), ("-1", [0, 1]), ("2-", [2, 3])],
)
def test_an_expression_chooses_tasks(expression, expected):
    assert chosen_tasks(expression, 4) == expected


@pytest.mark.parametrize("expression", ["4", "0,9", "3-1", "2-7"])
def test_a_task_that_is_not_there_is_refused(expression):
    with pytest.raises(ts.InputError, match="must lie within 0-3"):
        chosen_tasks(expression, 4)


@pytest.mark.parametrize("expression", ["", "x", "-", "1,,2", "1 2"])
def test_another_form_is_refused(expression):
    with pytest.raises(ts.InputError, match="takes list, all, or numbers"):
        chosen_tasks(expression, 4)
