from texttable import Texttable
def width(cell):
    return Texttable()._len_cell(cell)
cases = {"": 0, "a": 1, "a\tb": 9, "\t": 8, "\t\t": 16, "1234567\tb": 9, "12345678\tb": 17, "abc\ndefgh": 5, "a\tb\tc": 17, "x\n1234567\t1": 9}
for cell, expected in cases.items():
    assert width(cell) == expected, (cell, width(cell))
table = Texttable()
for row in (["x", float("nan")], ["y", float("inf")], ["z", 1.5], ["w", 2.0], ["v", True], ["u", -float("inf")]):
    table.add_row(row)
drawn = table.draw()
for text in ("nan", "inf", "1.500", "True"):
    assert text in drawn, drawn
assert any(line.split("|")[2].strip() == "2" for line in drawn.splitlines() if "w" in line)
assert Texttable().add_row(["a\tb"]).draw().splitlines()[0] == "+" + "-" * 11 + "+"
print("passed")
