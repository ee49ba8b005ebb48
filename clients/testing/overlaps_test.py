#!/usr/bin/env python3
"""The analysis of `failovers` and `fleet`, with events that are made up."""

import sys
import unittest

sys.dont_write_bytecode = True  # Nothing is written into the source tree.
from overlaps import holds_of, not_grown, overlaps_of, overtaken, pairs_of, pauses  # noqa: E402

KILL = {"kind": "kill", "number": 1, "at": 10.0, "settled": 20.0}
PLANNED = {"kind": "planned", "number": 1, "at": 30.0, "settled": 40.0}


def begin(process, at, lock="a", limit=1, token=None):
    return {"event": "begin", "process": process, "package": "p", "lock": lock, "limit": limit,
            "owner": process, "token": token or int(at * 1000), "at": at}


def hold(process, first, last, how="release", **more):
    start = begin(process, first, **more)
    return [start, {**start, "event": "end", "at": last, "how": how}]


def found(*events):
    holds = holds_of([each for some in events for each in (some if isinstance(some, list) else [some])])
    return overlaps_of(holds, [KILL, PLANNED])


class Overlaps(unittest.TestCase):
    def test_one_after_another_do_not_overlap(self):
        self.assertEqual(found(hold("x", 1, 2), hold("y", 2, 3), hold("x", 3.5, 4)), [])

    def test_two_locks_have_nothing_to_do_with_each_other(self):
        self.assertEqual(found(hold("x", 1, 3), hold("y", 2, 4, lock="b")), [])

    def test_an_overlap_says_how_long_and_after_which_fault(self):
        (one,) = found(hold("x", 11, 12.5), hold("y", 12, 15))
        self.assertEqual((one.seconds, one.fault, one.hold.process), (0.5, KILL, "y"))
        self.assertEqual([each.process for each in one.others], ["x"])
        (one,) = found(hold("x", 1, 3), hold("y", 2, 4))
        self.assertIsNone(one.fault)

    def test_the_order_in_which_events_arrive_does_not_matter(self):
        (one,) = found(hold("y", 32, 35), hold("x", 31, 33))
        self.assertEqual((one.seconds, one.fault, one.hold.process), (1, PLANNED, "y"))

    def test_a_hold_within_another_overlaps_until_its_own_end(self):
        self.assertEqual([each.seconds for each in found(hold("x", 11, 19), hold("y", 12, 13), hold("z", 14, 16))], [1, 2])

    def test_a_limit_of_two_excludes_the_third(self):
        two = {"limit": 2}
        self.assertEqual(found(hold("x", 1, 5, **two), hold("y", 2, 6, **two), hold("z", 5, 7, **two)), [])
        (one,) = found(hold("x", 1, 5, **two), hold("y", 2, 6, **two), hold("z", 4, 7, **two))
        self.assertEqual((one.seconds, one.hold.process), (1, "z"))

    def test_a_hold_that_is_lost_ends_when_its_holder_knows(self):
        (one,) = found(hold("x", 11, 13, "lost:notheld"), hold("y", 12, 14), hold("z", 15, 16))
        self.assertEqual((one.seconds, [each.was_told() for each in one.others]), (1, [True]))

    def test_a_release_that_is_refused_tells_its_holder_too(self):
        late = {"event": "late", "process": "x", "lock": "a", "token": 11000, "cause": "notheld"}
        (one,) = found(hold("x", 11, 13), late, hold("y", 12, 14))
        self.assertTrue(one.others[0].was_told())
        self.assertFalse(one.hold.was_told())

    def test_a_hold_without_an_end_lasts_until_its_process_has_ended(self):
        gone = {"event": "exit", "process": "x", "at": 14.0}
        self.assertEqual([each.seconds for each in found(begin("x", 11), hold("y", 12, 13), hold("z", 13.5, 15), gone)], [1, 0.5])
        self.assertEqual(found(begin("x", 11), gone, hold("y", 14, 15)), [])
        self.assertEqual(found(begin("x", 11), hold("y", 14, 15), {**gone, "process": "y", "at": 16.0})[0].seconds, 1)

    def test_a_hold_that_ended_is_no_longer_for_the_end_of_its_process(self):
        self.assertEqual(found(hold("x", 11, 12), hold("y", 13, 14), {"event": "exit", "process": "x", "at": 15.0}), [])

    def test_a_pause_is_the_longest_time_after_a_fault_in_which_nothing_began(self):
        holds = holds_of([*hold("x", 9, 10.5), *hold("y", 14, 16), *hold("x", 16, 19), *hold("y", 17, 18, lock="b", limit=2)])
        self.assertEqual(pauses(holds, [KILL, PLANNED]), [4, 10])


class Pairs(unittest.TestCase):
    FAULT = {"kind": "cut", "number": 1, "at": 10.0, "settled": 20.0, "old": "a", "beside": "a"}

    def pair(self, first, last):
        (overlap,) = overlaps_of(holds_of([*first, *last]), [self.FAULT])
        (pair,) = pairs_of(overlap)
        return pair.old.process, pair.is_told_apart()

    def test_the_old_masters_hold_is_known_by_its_server(self):
        by = [{**each, "server": server} for server, each in zip("aabb", [*hold("x-c", 11, 14), *hold("y-a", 12, 15)])]
        self.assertEqual(self.pair(by[:2], by[2:]), ("x-c", True))
        by = [{**each, "server": server} for server, each in zip("bbaa", [*hold("x-c", 11, 14), *hold("y-a", 12, 15)])]
        self.assertEqual(self.pair(by[:2], by[2:]), ("y-a", False))

    def test_it_is_known_by_the_machine_that_was_cut_off_or_else_by_what_its_holder_was_told(self):
        self.assertEqual(self.pair(hold("x-b", 11, 14, token=9), hold("y-a", 12, 15, token=8)), ("y-a", True))
        self.assertEqual(self.pair(hold("x-b", 11, 14), hold("y-c", 12, 15, "lost:notheld")), ("y-c", False))
        self.assertEqual(self.pair(hold("x-b", 11, 14), hold("y-c", 12, 15)), ("x-b", True))

    def test_equal_tokens_tell_nothing(self):
        self.assertEqual(self.pair(hold("x-a", 11, 14, token=9), hold("y-c", 12, 15, token=9)), ("x-a", False))


class Order(unittest.TestCase):
    def test_tokens_grow_from_hold_to_hold(self):
        events = [*hold("x", 1, 2, token=7), *hold("y", 2, 3, token=8)]
        self.assertEqual(not_grown(holds_of(events)), [])
        events += [*hold("z", 4, 5, token=8), *hold("z", 4, 5, lock="b", token=1)]
        self.assertEqual(not_grown(holds_of(events)), ["a: 8 after 8"])

    def test_one_that_was_seen_behind_is_not_served_first(self):
        holds = holds_of([*hold("x", 1, 2), *hold("y", 2, 3)])
        self.assertEqual(overtaken({"a": {("x", "y"): 0.5, ("x", "gave up"): 0.5, ("gave up", "y"): 0.5}}, holds), [])
        self.assertEqual(len(overtaken({"a": {("y", "x"): 0.5}}, holds)), 1)


if __name__ == "__main__":
    unittest.main()
