"""Which holds of a lock overlapped although its limit excludes it: the analysis of `faults`, from events alone.

Events are dictionaries with `at` in seconds. Workers say `begin`, `end` and `late` (the release was told that the lock had been lost), and
`exit` when a process has ended.
"""

import dataclasses
import math

AT_ONCE = 0.5  # seconds


@dataclasses.dataclass
class Hold:
    """A hold as its holder saw it: from acquire's return until it released or was told that the lock is lost."""

    package: str
    process: str
    lock: str
    limit: int
    token: int
    begin: float
    end: float = math.inf
    how: str = "open"
    told: float = math.inf  # when the release was answered that the lock had been lost

    def is_lost(self):
        """Whether the server did not have it any more while it was held. A release that took long says nothing: it, too, was cut off."""
        return self.how == "lost:notheld" or (self.how == "late:notheld" and self.told < self.end + AT_ONCE)

    def was_told(self):
        return self.how.startswith(("lost:", "late:"))


@dataclasses.dataclass
class Overlap:
    """A hold that began while as many others as the limit allows had the lock."""

    hold: Hold
    others: list
    seconds: float
    fault: dict | None

    def __str__(self):
        after = f"{self.hold.begin - self.fault['at']:.3f} s after {self.fault['kind']} {self.fault['number']}" if self.fault else "before any fault"
        others = ", ".join(f"{each.process} {each.token} {each.how}" for each in self.others)
        hold = f"{self.hold.process} {self.hold.token} {self.hold.how}"
        return f"{self.hold.lock} (limit {self.hold.limit}), {after}, for {self.seconds:.3f} s: {hold}; beside {others}"


@dataclasses.dataclass
class Pair:
    """Two holders at a time: by the master that was replaced, and by the new one."""

    old: Hold
    new: Hold

    def is_told_apart(self):
        """Whether a store that has seen the true holder's token refuses the other's."""
        return self.old.token < self.new.token


def holds_of(events):
    """A hold ends at the latest when its process ends."""
    holds = {}
    for event in events:
        key = event.get("process"), event.get("lock"), event.get("token")
        if event["event"] == "begin":
            holds[key] = Hold(event["package"], *key[:2], event["limit"], event["token"], event["at"])
        elif event["event"] == "end":
            holds[key].end, holds[key].how = event["at"], event["how"]
        elif event["event"] == "late":
            holds[key].how, holds[key].told = f"late:{event['cause']}", event.get("at", math.inf)
        elif event["event"] == "exit":
            for hold in holds.values():
                if hold.process == event["process"]:
                    hold.end = min(hold.end, event["at"])
    return list(holds.values())


def overlaps_of(holds, faults):
    """Intervals that only touch do not overlap."""
    found, inside = [], {}
    for hold in sorted(holds, key=lambda each: each.begin):
        others = inside[hold.lock] = [each for each in inside.get(hold.lock, []) if each.end > hold.begin]
        if len(others) >= hold.limit:
            ends = sorted(each.end for each in [*others, hold])
            seconds = ends[len(others) - hold.limit] - hold.begin
            found.append(Overlap(hold, list(others), seconds, fault_before(hold.begin, faults)))
        others.append(hold)
    return found


def pairs_of(overlap):
    """Each other hold, with the one that it overlaps: the old master's is known by its client's machine if that was cut off beside the master, or
    since its holder was told; and else it is the one that began first."""
    machine = (overlap.fault or {}).get("beside")

    def is_old(hold):
        return hold.process[-1] == machine, hold.was_told()

    for other in overlap.others:
        first, last = sorted([other, overlap.hold], key=lambda hold: hold.begin)
        yield Pair(first, last) if is_old(first) >= is_old(last) else Pair(last, first)


def fault_before(at, faults):
    return max((fault for fault in faults if fault["at"] <= at), key=lambda fault: fault["at"], default=None)
