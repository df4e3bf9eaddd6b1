"""Paths that the project, which is untrusted, could decide about."""

from sanderling.paths import path_outside


def test_path_has_neither_the_projects_directories_nor_what_its_links_lead_to(
    tmp_path, monkeypatch
):
    project, outside = tmp_path / "project", tmp_path / "outside"
    for directory in (project / "bin", outside):
        directory.mkdir(parents=True)
    (project / "link").symlink_to("../outside")
    (tmp_path / "chain").symlink_to("project/./link")
    (tmp_path / "other").symlink_to(outside)
    (tmp_path / "same").symlink_to(project)
    own = (project / "bin", project / "link", tmp_path / "chain", tmp_path / "same/bin", "bin", "")
    kept = [str(outside), str(tmp_path / "other"), "/usr/bin"]
    monkeypatch.setenv("PATH", ":".join(map(str, (*own, *kept))))
    assert path_outside(str(project)).split(":") == kept
    assert path_outside(str(tmp_path / "same")).split(":") == kept
