import datetime, tomlkit
def read(text):
    return tomlkit.parse("x = " + text)["x"]
for digits, expected in {"5": 500000, "05": 50000, "000001": 1, "123": 123000, "123456": 123456, "1234567": 123456, "999999999": 999999, "0": 0, "10": 100000}.items():
    for text in (f"1979-05-27T07:32:00.{digits}Z", f"1979-05-27T07:32:00.{digits}", f"1979-05-27 07:32:00.{digits}-07:30", f"07:32:00.{digits}"):
        assert read(text).microsecond == expected, (text, read(text).microsecond)
assert read("07:32:00") == datetime.time(7, 32)
assert read("1979-05-27T00:32:00.5-07:30").utcoffset() == datetime.timedelta(hours=-7, minutes=-30)
text = "when = 1979-05-27T07:32:00.5Z # keep\n"
assert tomlkit.dumps(tomlkit.parse(text)) == text
print("passed")
