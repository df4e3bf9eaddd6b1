from datetime import timedelta
import parse
def hour(text):
    return parse.parse("{:tg}", "1/2/2011 " + text)[0]
for text, expected in {"12:15:00 PM": (12, 15), "12:15:00 AM": (0, 15), "1:00:00 PM": (13, 0), "11:59:59 PM": (23, 59), "11:00:00 AM": (11, 0), "12:00 PM": (12, 0), "10:21": (10, 21)}.items():
    found = hour(text)
    assert (found.hour, found.minute) == expected, (text, found)
def offset(text):
    return parse.parse("{:ti}", "1972-01-20T10:21:36" + text)[0].utcoffset()
for text, minutes in {"-03:30": -210, "+03:30": 210, "-0330": -210, "+0330": 210, "-00:45": -45, "-03:00": -180, "+00:00": 0, "+00:30": 30, "Z": 0, "-11:59": -719}.items():
    assert offset(text) == timedelta(minutes=minutes), (text, offset(text))
assert parse.parse("{:tt}", "12:00:00 PM")[0].hour == 12
assert parse.parse("{:tt}", "12:30:00 AM -0530")[0].utcoffset() == timedelta(minutes=-330)
print("passed")
