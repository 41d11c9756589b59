"""The tests of projects run in processes of their own, with pytest-django: a process has one project."""

collect_ignore = ["suite"]
