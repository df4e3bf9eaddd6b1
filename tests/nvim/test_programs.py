"""Programs that run outside the sandbox, which a project cannot replace."""


def test_no_link_of_the_project_is_on_path(child, project):
    outside = project.parent / "outside"
    outside.mkdir()
    (project / "bin").mkdir()
    (project / "link").symlink_to("../outside")
    (project.parent / "chain").symlink_to(f"{project.name}/./link")
    (project.parent / "other").symlink_to(outside)
    (project.parent / "same").symlink_to(project)
    own = [project / "bin", project / "link", project.parent / "chain", project.parent / "same/bin"]
    kept = [str(outside), str(project.parent / "other"), "/usr/bin"]
    path = ":".join(map(str, [*own, "bin", *kept]))
    code = "vim.env.PATH = select(1, ...) return require('sanderling.access.programs').path(select(2, ...))"
    for root in (project, project.parent / "same"):
        assert child.lua(code, path, str(root)).split(":") == kept
