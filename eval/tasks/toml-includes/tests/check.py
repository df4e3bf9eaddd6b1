import pathlib, tempfile
import settings
with tempfile.TemporaryDirectory() as name:
    here = pathlib.Path(name)
    def write(path, text):
        (here / path).parent.mkdir(parents=True, exist_ok=True)
        (here / path).write_text(text, encoding="utf-8")
        return here / path
    write("base.toml", 'a = 1\nlist = [1, 2]\n[t]\nx = 1\ny = 1\n[t.deep]\nk = "base"\n')
    write("sub/more.toml", 'include = ["../base.toml"]\nb = 2\n[t]\ny = 2\n')
    main = write("main.toml", 'include = ["base.toml", "sub/more.toml"]\na = 3\nlist = [3]\n[t.deep]\nj = 1\n')
    expected = {"a": 3, "b": 2, "list": [3], "t": {"x": 1, "y": 2, "deep": {"k": "base", "j": 1}}}
    assert settings.load(main) == expected, settings.load(main)
    assert settings.load(str(main)) == expected
    assert settings.load(here / "base.toml") == {"a": 1, "list": [1, 2], "t": {"x": 1, "y": 1, "deep": {"k": "base"}}}
    one = write("one.toml", 'include = ["two.toml"]\n')
    write("two.toml", 'include = ["sub/three.toml"]\n')
    write("sub/three.toml", 'include = ["../one.toml"]\n')
    for path in (one, write("self.toml", 'include = ["self.toml"]\n')):
        try:
            settings.load(path)
        except ValueError as error:
            assert path.name in str(error) and not isinstance(error, RecursionError), error
            if path is one:
                assert "two.toml" in str(error) and "three.toml" in str(error), error
        else:
            raise AssertionError(path)
    try:
        settings.load(write("missing.toml", 'include = ["nothing.toml"]\n'))
    except FileNotFoundError:
        pass
    else:
        raise AssertionError
    assert settings.load(write("plain.toml", '[t]\ninclude = ["kept"]\n')) == {"t": {"include": ["kept"]}}
    assert settings.load(write("over.toml", 'include = ["base.toml"]\nt = 5\n'))["t"] == 5
    assert settings.load(write("twice.toml", 'include = ["base.toml", "base.toml"]\n'))["a"] == 1
    changed = write("c.toml", "a = 1\n")
    assert settings.load(changed) == {"a": 1}
    changed.write_text("a = 2\n")
    assert settings.load(changed) == {"a": 2}
print("passed")
