from itsdangerous import SignatureExpired, Signer, TimestampSigner, URLSafeSerializer
old, new, both = Signer("old"), Signer("new"), Signer(["old", "new"])
assert both.unsign(old.sign("x")) == b"x" and both.unsign(new.sign("x")) == b"x"
assert both.sign("x") == new.sign("x") and both.secret_key == b"new"
three = Signer(["a", "b", "c"])
for key in "abc":
    assert three.validate(Signer(key).sign("v"))
assert not three.validate(Signer("d").sign("v")) and not three.validate("v.c") and not Signer(["a", "c"]).validate(Signer("b").sign("v"))
assert not both.validate(old.sign("x") + b"1") and not both.validate(b"y." + old.sign("x").split(b".")[1])
assert URLSafeSerializer(["old", "new"]).loads(URLSafeSerializer("old").dumps([1])) == [1]
class At(TimestampSigner):
    now = 1000
    def get_timestamp(self):
        return self.now
signer = At("key")
signed = signer.sign("v")
for later, age, fits in ((0, 0, True), (5, 5, True), (6, 5, False), (1, 0, False), (-1, 5, False), (0, None, True)):
    signer.now = 1000 + later
    try:
        found = signer.unsign(signed, max_age=age) == b"v"
    except SignatureExpired:
        found = False
    assert found == fits, (later, age)
print("passed")
