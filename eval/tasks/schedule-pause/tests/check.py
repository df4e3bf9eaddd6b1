import datetime, schedule
def past(job):
    job.next_run = datetime.datetime.now() - datetime.timedelta(seconds=1)
ran = []
s = schedule.Scheduler()
a = s.every(10).minutes.do(ran.append, "a").tag("x", "y")
b = s.every(20).minutes.do(ran.append, "b").tag("x")
c = s.every(30).minutes.do(ran.append, "c")
assert s.next_run == a.next_run
s.pause("y")
assert s.next_run == b.next_run and s.get_next_run("y") is None and s.get_next_run("x") == b.next_run and s.get_next_run() == b.next_run
for job in (a, b, c):
    past(job)
s.run_pending()
assert sorted(ran) == ["b", "c"], ran
ran.clear()
s.resume("x")
s.run_pending()
s.run_pending()
assert ran == ["a"], ran
ran.clear()
s.pause()
assert s.next_run is None and s.idle_seconds is None and len(s.get_jobs()) == 3
d = s.every(5).minutes.do(ran.append, "d")
past(a)
past(d)
s.run_pending()
assert ran == ["d"], ran
s.run_all()
assert sorted(ran) == ["a", "b", "c", "d", "d"], ran
s.resume("nothing")
assert s.next_run == d.next_run
s.pause("x")
s.resume()
assert s.next_run in (a.next_run, d.next_run) and s.next_run == min(job.next_run for job in s.jobs)
ran.clear()
schedule.every().minute.do(ran.append, 1).tag("t")
schedule.pause("t")
past(schedule.jobs[0])
schedule.run_pending()
assert ran == [] and schedule.next_run() is None and schedule.idle_seconds() is None
schedule.resume()
schedule.run_pending()
assert ran == [1] and schedule.pause.__doc__ and schedule.Scheduler.resume.__doc__
s.cancel_job(a)
assert a not in s.jobs and schedule.pause() is None
print("passed")
