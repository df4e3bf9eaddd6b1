"""Print the sums by region."""

import csv
import sys


def read(path):
    sums = {}
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            sums[row["region"]] = sums.get(row["region"], 0) + float(row["amount"])
    return sums


def main():
    sums = read(sys.argv[1])
    for region in sorted(sums):
        print(f"{region:<10} {sums[region]:>9.2f}")


if __name__ == "__main__":
    main()
