"""Which holds of a lock overlapped although its limit excludes it: the analysis of `failovers`, from events alone.

Events are dictionaries with `at` in seconds. Workers say `begin`, `end` and `late` (the release was told that the lock had been lost);
`failovers` adds `process` and `package` to theirs, `exit` when a process has ended, and `fault` with its `kind`.
"""

import dataclasses
import math


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


def holds_of(events):
    """A hold whose process ended before it did ends with the process."""
    holds = {}
    for event in events:
        key = event.get("process"), event.get("lock"), event.get("token")
        if event["event"] == "begin":
            holds[key] = Hold(event["package"], *key[:2], event["limit"], event["token"], event["at"])
        elif event["event"] == "end":
            holds[key].end, holds[key].how = event["at"], event["how"]
        elif event["event"] == "late":
            holds[key].how = f"late:{event['cause']}"
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


def fault_before(at, faults):
    return max((fault for fault in faults if fault["at"] <= at), key=lambda fault: fault["at"], default=None)


def pauses(holds, faults):
    """For each fault, the longest time after it in which no exclusive lock was given to anybody."""
    begins = sorted(hold.begin for hold in holds if hold.limit == 1)
    found = []
    for fault in faults:
        times = [at for at in begins if fault["at"] <= at <= fault["settled"]]
        found.append(max((b - a for a, b in zip([fault["at"], *times], [*times, fault["settled"]])), default=0.0))
    return found
