import signal, sys, threading
signal.alarm(90)
sys.setswitchinterval(1e-6)
from registry import Registry

registry = Registry()
seen = []
lock = threading.Lock()
def note(name, value):
    with lock:
        seen.append((name, value, threading.current_thread()))
registry.on_change(note)
errors = []
def work(number):
    try:
        for turn in range(300):
            registry.count("all")
            registry.count(f"own {number} {turn}")
            if turn % 20 == 0:
                registry.snapshot()
    except Exception as error:
        errors.append(error)
threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not errors, errors
assert registry.snapshot()["all"] == 1800, registry.snapshot()["all"]
values = sorted(value for name, value, _ in seen if name == "all")
assert values == list(range(1, 1801)), "a value was passed twice, or never"
assert {thread for *_, thread in seen} == set(threads)

again = Registry()
def nested(name, value):
    if name == "a":
        again.count("b")
        again.snapshot()
again.on_change(nested)
done = threading.Thread(target=lambda: again.count("a"), daemon=True)
done.start()
done.join(5)
assert not done.is_alive(), "a callback that counts hangs"
assert again.snapshot() == {"a": 1, "b": 1}
copy = again.snapshot()
copy["a"] = 99
assert again.snapshot()["a"] == 1
# A callback that waits for another thread which counts, too.
other = Registry()
def waits(name, value):
    if name == "outer":
        thread = threading.Thread(target=other.count, args=("inner",), daemon=True)
        thread.start()
        thread.join(5)
        ended.append(not thread.is_alive())
ended = []
other.on_change(waits)
outer = threading.Thread(target=lambda: other.count("outer"), daemon=True)
outer.start()
outer.join(10)
assert ended == [True], "a callback that waits for another thread hangs"
assert not outer.is_alive() and other.snapshot() == {"outer": 1, "inner": 1}
assert registry.count("x", 5) == 5 and registry.count("x") == 6
print("passed")
