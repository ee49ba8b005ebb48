"""A cron job that runs once, though all machines start it.

    scripts/clients/python run examples/python/cron_once.py URL NAME COMMAND...

In the crontab of each machine:

    0 3 * * *  python cron_once.py redis://locks:6379 nightly-report /usr/local/bin/report

The first caller runs the command; the others end at once. The lock is not released: it stays for the rest of its lease, so
that a machine whose clock is late finds it still taken. It is renewed for as long as the command runs. The command gets
the fencing token as FAIRLOCK_TOKEN.
"""

import os
import subprocess
import sys

import redis

import fairlock

# Longer than the machines' clocks differ, and shorter than until the job is due again.
LEASE = 600


def main(url, name, *command):
    locks = fairlock.Locks(redis.Redis.from_url(url), lease=LEASE)
    held = locks.try_acquire(f"cron:{name}")
    if held is None:
        print(f"{name}: another machine has it")
        return 0
    job = subprocess.Popen(command, env={**os.environ, "FAIRLOCK_TOKEN": str(held.token)})
    while job.poll() is None:
        if held.lost.wait(0.05):
            # Another machine may start it now.
            job.terminate()
            sys.exit(f"{name}: {held.lost.cause}: the lock was lost")
    print(f"{name}: done, status {job.returncode}")
    return job.returncode


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
