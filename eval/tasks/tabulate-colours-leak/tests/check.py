from tabulate import tabulate
red, reset = "\033[31m", "\033[0m"
first = tabulate([[red + "some words without an end"], ["plain words that are wrapped"]], maxcolwidths=[8], tablefmt="plain")
lines = first.splitlines()
coloured = [line for line in lines if red in line]
assert len(coloured) >= 3 and all(line.rstrip().endswith(reset) for line in coloured), first
start = next(n for n, line in enumerate(lines) if "plain" in line)
assert all("\033" not in line for line in lines[start:]), first
second = tabulate([["nothing coloured in here at all"]], maxcolwidths=[8], tablefmt="plain")
assert "\033" not in second, second
third = tabulate([[red + "red words until here" + reset + " and more plain words"]], maxcolwidths=[9], tablefmt="plain")
assert "\033" not in third.splitlines()[-1]
fourth = tabulate([[red + "left cell words", "right cell words"]], maxcolwidths=[6, 6], tablefmt="plain")
for line in fourth.splitlines():
    right = line[line.rindex(reset):] if reset in line else line
    assert red not in right, fourth
assert tabulate([["a", 1]], tablefmt="plain") == "a  1"
print("passed")
