import idna
from idna.core import check_bidi
hebrew, mark, arabic_mark = "\u05d0", "\u05b0", "\u064b"
good = [hebrew + mark, hebrew + mark * 2, hebrew + "1" + mark, "\u0627" + arabic_mark, "\u0627" + "\u0661" + arabic_mark, hebrew, hebrew + "1"]
for label in good:
    assert check_bidi(label), ascii(label)
assert check_bidi("a" + "\u0300", check_ltr=True)
assert check_bidi("a1" + "\u0300\u0301", check_ltr=True)
for label in [hebrew + "-", hebrew + "-" + mark, hebrew + "!" + mark, "1" + hebrew, hebrew + "1" + "\u0661", hebrew + "a", "a" + hebrew, mark + hebrew]:
    try:
        check_bidi(label)
    except idna.IDNABidiError:
        continue
    raise AssertionError(ascii(label))
for label in ["a-" + "\u0300", "a!"]:
    try:
        check_bidi(label, check_ltr=True)
    except idna.IDNABidiError:
        continue
    raise AssertionError(ascii(label))
assert idna.encode(hebrew + mark) == b"xn--7cb4e" or idna.decode(idna.encode(hebrew + mark)) == hebrew + mark
assert idna.encode("example.com.") == b"example.com."
print("passed")
