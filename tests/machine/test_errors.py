"""The line of a user's own function that an error names."""

import pytest
from tunesmith.machine.errors import InputError, blamed


def helper():
    raise ValueError("no tiles")


def own():
    helper()


def blame(function):
    with pytest.raises(InputError) as found, blamed("the schedule 'tiles'", function):
        function()
    return str(found.value)


def test_the_deepest_line_of_its_file_is_named():
    line = helper.__code__.co_firstlineno + 1
    message = f"the schedule 'tiles' failed in test_errors.py, line {line}: ValueError: no tiles"
    assert blame(own) == message


def test_code_that_was_sent_without_its_file_name_is_named_by_its_module(monkeypatch):
    """As cloudpickle 3.1.3 does."""
    line = helper.__code__.co_firstlineno + 1
    for function in (helper, own):
        monkeypatch.setattr(function, "__code__", function.__code__.replace(co_filename="<dynamic-code>"))
    assert f"failed in test_errors.py, line {line}: " in blame(own)


def test_of_code_without_a_file_the_source_is_named():
    names = {}
    exec(compile("def typed():\n    raise ValueError('no tiles')", "<stdin>", "exec"), names)
    assert "failed in <stdin>, line 2: " in blame(names["typed"])


def test_a_function_of_another_file_is_not_named():
    names = {"helper": helper, "__file__": "/tmp/mine.py"}
    exec(compile("def typed():\n    helper()", "mine.py", "exec"), names)
    assert "failed in mine.py, line 2: " in blame(names["typed"])
