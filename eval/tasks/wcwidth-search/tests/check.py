import wcwidth as package
from wcwidth.wcwidth import WIDE_EASTASIAN, ZERO_WIDTH, _bisearch
assert package.wcwidth("\u2329") == 2 and package.wcwidth("\u597d") == 2 and package.wcwidth("\u0301") == 0 and package.wcwidth("a") == 1
for tables in (WIDE_EASTASIAN, ZERO_WIDTH):
    for version, table in list(tables.items())[::4]:
        for low, high in table:
            assert _bisearch(low, table) == _bisearch(high, table) == 1, (version, hex(low))
        gaps = [(a[1] + 1, b[0] - 1) for a, b in zip(table, table[1:]) if b[0] - a[1] > 1]
        for low, high in gaps:
            assert not _bisearch(low, table) and not _bisearch(high, table), hex(low)
        assert not _bisearch(table[0][0] - 1, table) and not _bisearch(table[-1][1] + 1, table)
assert _bisearch(5, [(5, 5)]) == 1 and _bisearch(6, [(5, 5), (7, 9)]) == 0
assert package.wcswidth("\u30b3\u30f3\u30cb\u30c1\u30cf") == 10 and package.wcswidth("cafe\u0301") == 4
print("passed")
