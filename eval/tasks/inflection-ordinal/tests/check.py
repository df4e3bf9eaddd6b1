from inflection import ordinal, ordinalize
for number in range(-1300, 1301):
    positive = abs(number)
    last, two = positive % 10, positive % 100
    expected = "th" if 10 < two < 14 else {1: "st", 2: "nd", 3: "rd"}.get(last, "th")
    assert ordinal(number) == expected and ordinalize(number) == f"{number}{expected}", number
assert ordinalize("11") == "11th" and ordinal("1012") == "th" and ordinalize(10**12 + 11) == "1000000000011th"
print("passed")
