import itertools
import os
import stat
import time
from pathlib import Path

import pytest

from lowvar.errors import UserError
from lowvar_studies.datasets import fetch as fetching
from lowvar_studies.datasets.fetch import fetch, verify

# at the end of every refusal of a download
ADVICE = r"set LOWVAR_DATA_MIRROR to a folder that has uci/tiny\.csv, or put the file at .*raw/uci/tiny\.csv$"


@pytest.fixture
def raw(tmp_path):
    return tmp_path / "raw"


def files(folder):
    return sorted(str(p.relative_to(folder)) for p in Path(folder).rglob("*") if not p.is_dir())


def put(folder, content):
    path = folder / "uci/tiny.csv"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


def refused(message, dataset, raw, **options):
    with pytest.raises(UserError, match=message) as caught:
        fetch(dataset, raw, pause=0.01, **options)
    assert "\n" not in str(caught.value)


def test_downloads_once_and_then_only_checks(server, make, raw, body):
    server.says((200, body))
    dataset = make(server.url)
    assert fetch(dataset, raw) == [raw / "uci/tiny.csv"]
    assert fetch(dataset, str(raw)) == [raw / "uci/tiny.csv"]
    assert (raw / "uci/tiny.csv").read_bytes() == body
    assert server.requests == ["/uci/tiny.csv"]
    assert files(raw) == ["uci/tiny.csv"]
    assert verify(dataset, raw) == {"uci/tiny.csv": dataset.files[0].sha256}


@pytest.mark.parametrize("fault", [(503, b"busy"), (200, b"0.5,0,no", 900), (429, b"slow down"), ("reset", b"")])
def test_a_fault_of_the_network_is_tried_again(server, make, raw, body, fault):
    server.says(fault, (200, body))
    fetch(make(server.url), raw, pause=0.01)
    assert len(server.requests) == 2
    assert files(raw) == ["uci/tiny.csv"]
    assert (raw / "uci/tiny.csv").read_bytes() == body


@pytest.mark.parametrize(
    ("answer", "said", "requests"),
    [
        (lambda body: (200, b"x" + body[1:]), "bytes with sha256", 1),
        (lambda body: (200, body[:5000], len(body)), ADVICE, 3),
        (lambda body: (404, b"<html>no</html>"), "the server answered 404 ", 1),
        (lambda body: (403, b"<html>no</html>"), ADVICE, 1),
        (lambda body: (500, b"<html>no</html>"), "the server answered 500 ", 3),
        (lambda body: ("reset", b""), ADVICE, 3),
    ],
    ids=["wrong hash", "cut off", "404", "403", "500", "reset"],
)
def test_a_download_that_fails_is_refused(server, make, raw, body, answer, said, requests):
    server.says(answer(body))
    refused(said, make(server.url), raw)
    assert len(server.requests) == requests
    assert files(raw) == []


def test_a_download_stops_at_the_size_of_the_file(server, make, raw, body):
    """A server that sends 400 MB for a file of some kilobytes."""
    server.says((200, (bytes(1 << 20) for _ in range(400)), 400 << 20))
    refused(f"more than the {len(body)} bytes", make(server.url), raw)
    assert len(server.requests) == 1
    assert server.sent < 50 << 20
    assert files(raw) == []


def test_a_download_that_stalls_or_trickles_is_given_up(server, make, raw, body, monkeypatch):
    def trickle(pause):
        for i in range(len(body)):
            time.sleep(pause)
            yield body[i : i + 1]

    monkeypatch.setattr(fetching, "_TIMEOUT", 0.3)
    server.says((200, trickle(0.05), len(body)))
    refused(rf"slower than 1 kB a second after \d+ of {len(body)} bytes", make(server.url), raw, attempts=1)
    server.says((200, itertools.chain([body[:500]], trickle(2)), len(body)))
    refused(rf"nothing came for .* after 500 of {len(body)} bytes", make(server.url), raw, attempts=1)
    assert files(raw) == []


@pytest.mark.parametrize("how", ["argument", "environment"])
def test_mirror_is_looked_in_first(make, raw, tmp_path, body, monkeypatch, how):
    put(tmp_path / "mirror", body).chmod(0o444)
    if how == "environment":
        monkeypatch.setenv("LOWVAR_DATA_MIRROR", str(tmp_path / "mirror"))
    paths = fetch(make(), raw, mirror=tmp_path / "mirror" if how == "argument" else None)
    assert [path.read_bytes() for path in paths] == [body]
    assert stat.S_IMODE(paths[0].stat().st_mode) & stat.S_IWUSR
    assert files(raw) == ["uci/tiny.csv"]


def test_wrong_hash_in_the_mirror(server, make, raw, tmp_path, body):
    source = put(tmp_path / "mirror", body[:-1])
    refused(
        f"{source} has sha256 .* should be {make().files[0].sha256}", make(server.url), raw, mirror=tmp_path / "mirror"
    )
    assert files(raw) == []
    assert server.requests == []


def test_wrong_hash_of_a_file_that_is_there(server, make, raw, body):
    path = put(raw, body[:-1])
    refused(f"{path} has sha256 .*delete it and run `lowvar fetch` again", make(server.url), raw)
    assert path.read_bytes() == body[:-1]
    assert server.requests == []
    with pytest.raises(UserError, match="delete it"):
        verify(make(), raw)


def test_a_folder_where_the_file_should_be(make, raw):
    (raw / "uci/tiny.csv").mkdir(parents=True)
    refused("cannot read .*tiny.csv: Is a directory; it should be a readable file", make(), raw)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_folder(make, raw, tmp_path, body):
    put(tmp_path / "mirror", body)
    raw.mkdir(mode=0o555)
    refused("cannot write .*: Permission denied", make(), raw, mirror=tmp_path / "mirror")


def test_full_disk(server, make, tiny_disk, tmp_path, body):
    assert len(body) > 16 * 1024
    server.says((200, body))
    refused("cannot write .*tiny.csv", make(server.url), tiny_disk)
    assert files(tiny_disk) == []
    put(tmp_path / "mirror", body)
    refused("cannot write .*tiny.csv", make(), tiny_disk, mirror=tmp_path / "mirror")
    assert files(tiny_disk) == []
