"""Files that cannot be read or written are a sentence, whatever is in their place."""

import errno
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from lowvar.cli import main
from lowvar.core.files import all_or_none, atomic, folder_lock, write_text
from lowvar.errors import UserError
from lowvar_studies.yaml_files import read_yaml

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefg", "bcdefgh", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 2020-13-45", "month must be in 1..12"),
        ("a: 0x_", "invalid literal"),
        ("a: " + "1" * 5000, "Exceeds the limit"),
        ("[" * 600 + "]" * 600, "nested too deeply"),
        ("{a: " * 80_000 + "}" * 80_000, "nested too deeply"),
        ("a: 1\nb: *c", "undefined alias"),
        ("a: !!python/object:os.system x", "constructor"),
        ("a: \x00", "control characters"),
        ("a: 1\na: 2", "duplicate key 'a'"),
        (" " * 2**24 + "#", "longer than 16777216 characters"),
        (None, "Is a directory"),
    ],
)
def test_a_file_that_is_not_yaml(tmp_path, text, message):
    path = tmp_path / "a.yaml"
    path.write_text(text) if text else path.mkdir()
    with pytest.raises(UserError, match=message) as caught:
        read_yaml(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_shared_parts_are_read_once(tmp_path):
    (tmp_path / "a.yaml").write_text(BOMB)  # 9^8 entries, if they were copied
    assert len(read_yaml(tmp_path / "a.yaml")["h"]) == 9


@pytest.mark.parametrize("name", ["x" * 300, "folder", "a/b"])
def test_a_place_that_cannot_be_written(tmp_path, name):
    (tmp_path / "folder/inner").mkdir(parents=True)
    (tmp_path / "a").write_text("a file where a folder should be")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match="cannot write"):
        write_text(tmp_path / name, "text")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_file_larger_than_the_limit(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        with pytest.raises(UserError, match="cannot write"):
            write_text(tmp_path / "a", "x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs /proc")
def test_a_rename_lasts_through_a_power_cut(tmp_path, monkeypatch):
    """The file is synced before it is renamed, and its folder after."""
    synced, real = [], os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda handle: (synced.append(os.readlink(f"/proc/self/fd/{handle}")), real(handle))
    )
    write_text(tmp_path / "a", "text")
    assert [".tmp-" in one or one for one in synced] == [True, str(tmp_path)]


def written_together(place, /, **contents):
    with all_or_none():
        for name, content in contents.items():
            write_text(place / name, content)


def test_files_that_cannot_all_be_written_leave_the_former_ones(tmp_path):
    for name in ("a", "b"):
        write_text(tmp_path / name, "former")
    (tmp_path / "folder/inner").mkdir(parents=True)
    for place in ("x" * 300, "folder"):
        with pytest.raises(UserError, match="cannot write"):
            written_together(tmp_path, **{"a": "new", "c": "new", place: "new", "b": "new"})
        assert {path.name for path in tmp_path.iterdir()} == {"a", "b", "folder"}
        assert (tmp_path / "a").read_text() == "former"
    written_together(tmp_path, a="new", b="new")
    assert {(tmp_path / name).read_text() for name in ("a", "b")} == {"new"}
    assert len(list(tmp_path.iterdir())) == 3


def test_a_folder_in_use_is_waited_for(tmp_path, recwarn):
    """The lock of all jobs; it belongs to an open file, so that another thread has to wait too."""
    entered = threading.Event()

    def other():
        with folder_lock(tmp_path):
            entered.set()

    thread = threading.Thread(target=other)
    with folder_lock(tmp_path):
        thread.start()
        while thread.is_alive() and not recwarn.list:
            time.sleep(0.01)
        assert not entered.is_set()
    thread.join()
    assert entered.is_set()
    assert f"{tmp_path}: waiting for another process, which works in this folder" in str(recwarn.pop().message)


def test_a_full_disk_keeps_the_former_files(tiny_disk):
    write_text(tiny_disk / "a", "former")
    with pytest.raises(UserError, match="cannot write"):
        written_together(tiny_disk, a="new", b="x" * 10**6)
    assert [(path.name, path.read_text()) for path in tiny_disk.iterdir()] == [("a", "former")]


def test_a_full_disk(tiny_disk):
    with pytest.raises(UserError, match="cannot write"), atomic(tiny_disk / "a") as part:
        part.write_bytes(b"x" * 10**6)
    assert list(tiny_disk.iterdir()) == []


KILLED = """
import os, sys
from lowvar.core.files import atomic
with atomic(sys.argv[1]) as part:
    part.write_text("half")
    os.kill(os.getpid(), 9)
"""


def test_what_a_killed_writer_left_is_swept(tmp_path):
    """By the next writer of the same file, and by no other."""
    for name in ("a.txt", "b.txt"):
        subprocess.run([sys.executable, "-c", KILLED, tmp_path / name], check=False)
    left = {path.name[:6] for path in tmp_path.iterdir()}
    assert left == {".a.txt", ".b.txt"}
    write_text(tmp_path / "a.txt", "whole")
    assert sorted(path.name[:6] for path in tmp_path.iterdir()) == [".b.txt", "a.txt"]


def test_what_a_living_writer_writes_is_not_swept(tmp_path):
    with atomic(tmp_path / "a") as part:
        part.write_text("first")
        write_text(tmp_path / "a", "second")
        assert part.is_file()
        assert (tmp_path / "a").read_text() == "second"
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "first")]


def test_many_writers_of_one_file(tmp_path):
    """They sweep while others write: each write is whole, and nothing is left."""

    def write(text):
        for _ in range(100):
            write_text(tmp_path / "a", text * 100)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, "abcd"))
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() in {text * 100 for text in "abcd"}


def test_a_disk_that_fails(tmp_path):
    with pytest.raises(UserError, match=r"cannot write .*a: Input/output error"), atomic(tmp_path / "a"):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    assert list(tmp_path.iterdir()) == []


def test_the_last_of_two_writings_together_stays(tmp_path):
    with all_or_none():
        write_text(tmp_path / "b", "first")
        write_text(tmp_path / "b", "second")
    assert (tmp_path / "b").read_text() == "second"


@pytest.mark.parametrize("path", ["x" * 300 + ".yaml", "folder/" * 900 + "a.yaml"])
def test_a_name_and_a_path_that_are_too_long(capsys, path):
    assert main(["table", path]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "too long" in said
    assert len(said) < 500
