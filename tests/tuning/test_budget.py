"""Whose turn it is, and that nobody waits forever."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tunesmith.tuning import turns
from tunesmith.tuning.budget import TURN, Standing, first_shares, negligible, next_turn, worth_trials

INF = float("inf")
SEEKING = Standing(weight=1.0, trials=8, best_after=(1.0,) * 8, roofline_s=0.1)


NEW = replace(SEEKING, trials=0, best_after=())
# Another space of the same workload.
OTHER = replace(SEEKING, alternative=True, best_s=1.0)


def test_first_every_default_is_measured_then_those_of_other_spaces_then_all_have_a_share():
    other = replace(OTHER, trials=0, best_after=())
    assert worth_trials([other, SEEKING, NEW], 0.0) == [2]
    assert worth_trials([other, SEEKING, SEEKING], 0.0) == [0]
    assert worth_trials([OTHER, SEEKING, SEEKING], 0.0) == [0, 1, 2]
    once = replace(SEEKING, trials=1, best_after=(1.0,))
    assert first_shares([once, NEW, SEEKING], [0, 1, 2], ()) == [1]
    assert first_shares([once, once, SEEKING], [0, 1, 2], {0}) == [1]
    # Who takes little time has its turns, where that is asked for, but no first share.
    little = replace(once, weight=0.01)
    assert first_shares([once, little, SEEKING], [0, 1, 2], (), least_share=0.004) == [0]
    assert first_shares([once, little, SEEKING], [0, 1, 2], ()) == [0, 1]


def test_who_has_ended_gets_nothing():
    assert worth_trials([replace(NEW, ended=True), SEEKING, replace(SEEKING, ended=True)], 0.0) == [1]


def test_a_negligible_part_of_the_time_gets_its_default_alone():
    small = replace(SEEKING, weight=0.004)
    assert worth_trials([small, NEW], 0.005) == [1]
    assert worth_trials([small, SEEKING], 0.005) == [1] and negligible([small, SEEKING], 0.005) == [0]
    assert worth_trials([small, SEEKING], 0.003) == [0, 1]
    # Its other spaces are as negligible, and their time counts once.
    spaces = [small, replace(OTHER, weight=0.004, trials=0, best_after=()), SEEKING, OTHER]
    assert worth_trials(spaces, 0.005) == [2, 3] and worth_trials(spaces, 0.0035) == [1]
    # What has nothing right yet is no small part of the time.
    assert worth_trials([replace(small, best_after=(INF,)), SEEKING], 0.005) == [0, 1]


def test_the_better_space_gets_the_trials():
    slower = replace(OTHER, best_after=(1.5,) * 8)
    assert slower.expected_gain == pytest.approx(OTHER.expected_gain / 1.5**4)
    assert [next_turn([slower, SEEKING], turn) for turn in (0, 1, 2)] == [1, 1, 1]
    # One that is far behind has neither a first share nor turns for the sake of fairness.
    hopeless = replace(OTHER, trials=1, best_after=(2.0,))
    assert not hopeless.rivals and first_shares([hopeless, SEEKING], [0, 1], ()) == []
    assert [next_turn([hopeless, SEEKING], turn) for turn in range(4)] == [1, 1, 1, 1]
    nothing_right = replace(hopeless, best_after=(INF,))
    assert nothing_right.expected_gain == 0.0 and not nothing_right.rivals


def test_what_is_called_more_often_gets_more():
    often = replace(SEEKING, weight=5.0)
    assert [next_turn([SEEKING, often, SEEKING], turn) for turn in (0, 1, 2)] == [1, 1, 1]


def test_what_takes_longer_gets_more():
    slow = replace(SEEKING, best_after=(4.0,) * 8, roofline_s=0.4)
    assert next_turn([SEEKING, slow], 0) == 1


def test_who_gained_lately_goes_on():
    gaining = replace(SEEKING, best_after=(2.0, 1.9, 1.7, 1.5, 1.4, 1.2, 1.1, 1.0))
    assert gaining.expected_gain == pytest.approx(1.0 / 8)
    assert next_turn([SEEKING, gaining], 0) == 1
    # A gain of long ago does not count.
    of_old = replace(SEEKING, trials=40, best_after=(9.0, *(1.0,) * 39))
    assert of_old.expected_gain < SEEKING.expected_gain


def test_who_is_near_the_limit_waits():
    near = replace(SEEKING, roofline_s=0.99)
    assert next_turn([near, SEEKING], 0) == 1
    beyond = replace(SEEKING, roofline_s=1.5)
    # An algorithm of fewer operations may go beyond it, and further.
    assert 0.0 < beyond.expected_gain == near.expected_gain < SEEKING.expected_gain / 10


def test_who_has_nothing_right_yet_is_most_promising():
    none = replace(SEEKING, best_after=(INF,) * 8)
    assert none.expected_gain == INF and next_turn([SEEKING, none], 0) == 1
    # What failed before the first right one does not make its gain infinite.
    late = replace(SEEKING, best_after=(INF, INF, 3.0, 1.0))
    assert late.expected_gain == pytest.approx(2.0 / 2)


def test_every_fourth_turn_is_for_who_has_least():
    most = replace(SEEKING, weight=1e9)
    least = replace(SEEKING, weight=1e-9, trials=1)
    assert [next_turn([most, least], turn) for turn in range(8)] == [0, 0, 0, 1] * 2


class FakeSession:
    """A session whose trials take a second each on a clock of the test."""

    def __init__(self, clock, before=0, ends_after=None, trial_s=1.0, seconds=(1.0,), deadline=INF):
        self.clock, self.trials, self.trial_s, self.deadline = clock, before, trial_s, deadline
        self.seconds, self.ends_after = seconds, ends_after
        self.best_after, self.stopped_by, self.turns = [], None, []

    def standing(self, weight):
        ended = self.stopped_by is not None
        return Standing(weight, self.trials, self.best_after, 0.0, ended=ended)

    def advance(self, trials, until):
        start = len(self.best_after)
        # As a session does: the default is tried however late it is.
        while len(self.best_after) - start < trials and (not self.best_after or self.clock[0] < until):
            self.clock[0] += self.trial_s
            self.trials += 1
            at = min(len(self.best_after), len(self.seconds) - 1)
            self.best_after.append(self.seconds[at])
            if len(self.best_after) == self.ends_after:
                self.stopped_by = "exhausted"
                break
        if self.clock[0] >= self.deadline:
            self.stopped_by = "time_budget"
        self.turns.append(len(self.best_after) - start)


@pytest.fixture
def clock(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(turns.time, "monotonic", lambda: clock[0])
    return clock


def take_turns(sessions, trials, weights=None, deadline=INF):
    turns.take_turns(sessions, weights or [1.0] * len(sessions), trials, deadline)
    return [session.trials for session in sessions]


def test_one_workload_gets_all(clock):
    session = FakeSession(clock)
    assert take_turns([session], 50) == [50] and session.turns == [50]


@pytest.mark.parametrize("trials", [3, 7, 23, 24, 100])
def test_the_budget_is_kept_exactly(clock, trials):
    assert sum(take_turns([FakeSession(clock) for _ in range(3)], trials)) == trials


def test_trials_of_earlier_sessions_count(clock):
    assert sum(take_turns([FakeSession(clock, before=30), FakeSession(clock)], 40)) == 40
    done = [FakeSession(clock, before=30), FakeSession(clock, before=10)]
    assert take_turns(done, 40) == [30, 10] and not done[0].turns


def test_what_one_leaves_goes_to_others(clock):
    assert take_turns([FakeSession(clock, ends_after=2), FakeSession(clock)], 40) == [2, 38]
    assert take_turns([FakeSession(clock, ends_after=2), FakeSession(clock, ends_after=5)], 40) == [2, 5]


def test_weight_decides_and_the_light_one_is_not_starved(clock):
    light, heavy = take_turns([FakeSession(clock), FakeSession(clock)], 20 * TURN, weights=[1.0, 100.0])
    assert light + heavy == 20 * TURN
    assert light >= 20 * TURN // 4 - TURN and heavy > 2 * light


def test_slow_ones_leave_the_others_their_first_share_of_the_time(clock):
    sessions = [FakeSession(clock, trial_s=each, deadline=90.0) for each in (20.0, 1.0, 1.0)]
    take_turns(sessions, 1000, deadline=90.0)
    # Its default and a third of what is left then; the others have all that they may try at once.
    assert [session.turns[:2] for session in sessions] == [[1, 2], [1, TURN - 1], [1, TURN - 1]]


def test_what_ended_each_is_told(clock):
    def reasons(trials, deadline=INF, weights=(1.0, 1.0)):
        sessions = [FakeSession(clock, ends_after=2), FakeSession(clock)]
        return turns.take_turns(sessions, weights, trials, deadline, least_share=0.01)

    assert reasons(30) == ["exhausted", "trials"]
    assert reasons(30, deadline=clock[0] + 9) == ["exhausted", "time_budget"]
    assert reasons(30, weights=(1.0, 1e-3)) == ["exhausted", "negligible"]


def test_everyone_gets_a_default_even_if_the_time_is_over(clock):
    sessions = [FakeSession(clock, trial_s=50.0, deadline=10.0) for _ in range(3)]
    assert take_turns(sessions, 1000, deadline=10.0) == [1, 1, 1]


@given(
    st.lists(
        st.tuples(
            st.floats(1e-6, 1e6),
            st.lists(st.floats(1e-9, 10.0) | st.just(INF), min_size=1, max_size=30),
            st.none() | st.integers(1, 60),
        ),
        min_size=1,
        max_size=6,
    ),
    st.integers(1, 600),
)
def test_nobody_is_starved_and_no_trial_is_lost(workloads, trials):
    clock = [0.0]
    sessions = [
        FakeSession(clock, seconds=sorted(seconds, reverse=True), ends_after=ends)
        for _, seconds, ends in workloads
    ]
    trials = max(trials, len(sessions))
    take_turns(sessions, trials, [weight for weight, _, _ in workloads])
    done, going = [s.trials for s in sessions], [s for s in sessions if s.stopped_by is None]
    assert sum(done) == trials or (not going and sum(done) <= trials)
    assert min(done) >= 1
    turns = sum(len(session.turns) for session in sessions)
    # Every fourth turn goes to who has least: after as many of these as there are workloads, each has one.
    fair = (turns - len(sessions)) // 4
    for session in going:
        assert session.trials >= min(TURN, trials // len(sessions)) * (fair // len(sessions))
