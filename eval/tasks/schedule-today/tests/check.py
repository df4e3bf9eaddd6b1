import datetime
import schedule
class Fixed(datetime.datetime):
    moment = None
    @classmethod
    def now(cls, tz=None):
        return cls(*cls.moment)
real = datetime.datetime
schedule.datetime = type("module", (), {"datetime": Fixed, "timedelta": datetime.timedelta, "time": datetime.time, "date": datetime.date})
days = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
def next_run(moment, day, at):
    Fixed.moment = moment
    job = getattr(schedule.Scheduler().every(), day)
    job = job.at(at) if at else job
    run = job.do(lambda: None).next_run
    return real(run.year, run.month, run.day, run.hour, run.minute, run.second)
wednesday = (2025, 1, 1, 9, 0, 0)
assert next_run(wednesday, "wednesday", "18:00") == real(2025, 1, 1, 18)
assert next_run(wednesday, "wednesday", "09:00") == real(2025, 1, 8, 9)
assert next_run(wednesday, "wednesday", "08:59") == real(2025, 1, 8, 8, 59)
assert next_run(wednesday, "wednesday", None) == real(2025, 1, 8, 9)
for number, day in enumerate(days):
    ahead = (number - 2) % 7
    expected = real(2025, 1, 1, 10) + datetime.timedelta(days=ahead)
    assert next_run(wednesday, day, "10:00") == expected, day
assert next_run((2025, 1, 1, 19, 0, 0), "wednesday", "20:00") == real(2025, 1, 1, 20)
assert next_run((2024, 2, 29, 23, 59, 59), "thursday", "23:59:59") == real(2024, 3, 7, 23, 59, 59)
print("passed")
