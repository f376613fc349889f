"""The command line: words, exit codes, one JSON object last."""

import json
import re
import socket
import subprocess
import sys
import threading

import pytest

from serve_app import cli
from tests.client.answering import Answering
from tests.demo.test_show import CONTEXT

COMMAND = [sys.executable, "-m", "serve_app.cli"]
READY = {
    "/readyz": [(200, {}, {})],
    "/v1/context": [(200, {}, CONTEXT)],
}


def stored(status):
    return [(201, {}, {"results": [{"id": str(n), "status": status} for n in range(15)]})]


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch):
    monkeypatch.delenv("MEMSTRATA_KEY", raising=False)


def test_keys_create_prints_the_key_once(tmp_path, capsys):
    words = ["keys", "create", "--data", str(tmp_path), "--tenant", "a", "--user", "u", "--json"]
    assert cli.main(words) == 0
    said = capsys.readouterr()
    assert said.err == ""
    made = json.loads(said.out.splitlines()[-1])
    assert (made["tenant"], made["role"], made["user_id"]) == ("a", "app", "u")
    assert made["key"] not in (tmp_path / "keys.json").read_text()


def test_keys_create_says_that_it_made_the_folder(tmp_path, capsys):
    data = tmp_path / "mistyped"
    assert cli.main(["keys", "create", "--data", str(data), "--tenant", "a"]) == 0
    assert f"made the folder {data}" in capsys.readouterr().err


def test_search_prints_the_answer_as_json(capsys):
    with Answering({"/v1/search": [(200, {}, {"results": [{"id": "1"}]})]}) as service:
        words = ["search", "--url", service.url, "--key", "k", "--user", "u", "-k", "3", "--json", "where"]
        assert cli.main(words) == 0
    assert json.loads(capsys.readouterr().out) == {"results": [{"id": "1"}]}
    assert service.asked[0][3] == {"user_id": "u", "query": "where", "k": 3, "mode": "hybrid", "explain": True}


SHARES = {"system": 8, "facts": 6, "summary": 22, "retrieved": 16, "recent": 36, "query": 12}
DEFAULT_LAYOUT = {"name": "default", "shares": SHARES, "when": None, "built_in": True, "revision": 0}


def test_layouts_are_shown_to_a_person(capsys):
    listed = {"revision": 3, "layouts": [DEFAULT_LAYOUT, DEFAULT_LAYOUT | {"name": "x", "when": {"models": ["m*"]}}]}
    with Answering({"/v1/admin/layouts": [(200, {}, listed)]}) as service:
        assert cli.main(["layouts", "list", "--url", service.url, "--key", "k"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "default  system 8  facts 6  summary 22  retrieved 16  recent 36  query 12  (built in)"
    assert "for models: m*" in out[1]
    assert out[-1] == "revision 3"


def test_a_layout_is_set_from_what_it_was(capsys):
    """What is not said stays: of a new one as in `default`."""
    missing = (404, {}, {"code": "not_found"})
    made = DEFAULT_LAYOUT | {"name": "wide", "built_in": False, "revision": 4}
    routes = {
        "/v1/admin/layouts/wide": [missing, (200, {}, made)],
        "/v1/admin/layouts/default": [(200, {}, DEFAULT_LAYOUT)],
    }
    with Answering(routes) as service:
        words = ["layouts", "set", "wide", "--url", service.url, "--key", "k", "--json", "--share", "recent=30"]
        assert cli.main([*words, "--share", "facts=12", "--model", "gpt-*", "--query-type", "lookup"]) == 0
    assert json.loads(capsys.readouterr().out)["revision"] == 4
    when = {"models": ["gpt-*"], "query_types": ["lookup"]}
    assert service.asked[-1][3] == {"shares": SHARES | {"recent": 30, "facts": 12}, "when": when}
    with pytest.raises(SystemExit) as ended:
        cli.main(["layouts", "set", "wide", "--share", "recent"])
    assert ended.value.code == 2


def test_context_is_shown_to_a_person(capsys):
    with Answering(READY) as service:
        assert cli.main(["context", "--url", service.url, "--key", "k", "--user", "u", "where"]) == 0
    out = capsys.readouterr().out
    assert "300 of 1000 tokens" in out
    assert "预算 9000 元" in out
    assert service.asked[0][3]["explain"] is True


def test_a_refusal_is_exit_1_with_its_code(capsys):
    refusal = (401, {}, {"code": "unauthorized", "detail": "this key is not known"})
    with Answering({"/v1/search": [refusal]}) as service:
        assert cli.main(["search", "--url", service.url, "--key", "k", "--user", "u", "x"]) == 1
    assert "401 unauthorized: this key is not known" in capsys.readouterr().err


def test_the_key_is_taken_from_the_data_folder(tmp_path):
    (tmp_path / "admin.key").write_text("from-file\n")
    with Answering(READY) as service:
        words = ["context", "--url", service.url, "--data", str(tmp_path), "--user", "u", "x"]
        assert cli.main(words) == 0
    assert service.asked[0][2]["Authorization"] == "Bearer from-file"


@pytest.mark.parametrize(
    "words", [["search", "--user", "u", "x"], ["bench", "latency"], ["bench", "recall", "--data", "no-such-folder"]]
)
def test_no_key_at_all_is_said(capsys, words):
    assert cli.main(words) == 1
    assert "no key: give --key or set MEMSTRATA_KEY" in capsys.readouterr().err


@pytest.mark.parametrize(("status", "told"), [("stored", "30 of 30 stored"), ("duplicate", "stored already")])
def test_demo_tells_a_second_tour_from_a_first(capsys, status, told):
    with Answering({**READY, "/v1/sessions": stored(status)}) as service:
        assert cli.main(["demo", "--url", service.url, "--key", "k"]) == 0
    assert told in capsys.readouterr().out


def test_demo_asks_once(capsys):
    with Answering({**READY, "/v1/sessions": stored("stored")}) as service:
        cli.main(["demo", "--url", service.url, "--key", "k"])
    assert [path for _, path, *_ in service.asked if not path.startswith(("/v1/sessions", "/readyz"))] == [
        "/v1/context"
    ]
    assert service.asked[-1][3]["explain"] is True


def test_ingest_of_turns_without_ids_warns(tmp_path, capsys):
    path = tmp_path / "turns.jsonl"
    path.write_text(json.dumps({"user_id": "u", "session_id": "s", "role": "user", "content": "x"}))
    with Answering({"/v1/sessions": stored("stored")}) as service:
        assert cli.main(["ingest", "--url", service.url, "--key", "k", str(path)]) == 0
    assert "1 of 1 turns have no id" in capsys.readouterr().err


def test_ingest_of_a_rejected_turn_is_exit_1(tmp_path, capsys):
    path = tmp_path / "turns.jsonl"
    path.write_text(json.dumps({"user_id": "u", "session_id": "s", "id": "1", "role": "user", "content": "x"}))
    answer = (201, {}, {"results": [{"id": "1", "status": "rejected", "error": "conflict"}]})
    with Answering({"/v1/sessions": [answer]}) as service:
        assert cli.main(["ingest", "--url", service.url, "--key", "k", "--json", str(path)]) == 1
    told = capsys.readouterr()
    assert json.loads(told.out.splitlines()[-1]) == {"stored": 0, "duplicate": 0, "rejected": 1, "facts": 0}
    assert "rejected: s 1: conflict" in told.err


def test_a_wrong_setting_is_named(tmp_path, capsys):
    config = tmp_path / "memstrata.toml"
    config.write_text("no_such_setting = 1\n")
    words = ["serve", "--engine", "local", "--data", str(tmp_path / "d"), "--port", "0", "--config", str(config)]
    assert cli.main(words) == 1
    assert "no_such_setting" in capsys.readouterr().err


def test_a_taken_port_is_named(capsys, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        words = ["serve", "--data", str(tmp_path), "--port", str(port), "--port-wait", "0"]
        assert cli.main(words) == 1
    assert f"port {port} on 127.0.0.1 is in use" in capsys.readouterr().err


def test_a_wrong_command_line_is_exit_2():
    done = subprocess.run([*COMMAND, "no-such-command"], capture_output=True, check=False)
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--version"], "memstrata 0."),
        (["serve", "--help"], "port to listen on (default: 8000)"),
        (["search", "--help"], "lexical: by words alone (default: hybrid)"),
        (["keys", "create", "--help"], "admin: also the keys of its tenant"),
        (["ingest", "--help"], "one turn a line: user_id, session_id, role, content"),
        (["serve", "--help"], "data folder of the writer to follow; makes this a replica"),
        (["bench", "scale", "--help"], "Beside some figures stands a bar"),
    ],
)
def test_help_says(capsys, monkeypatch, words, told):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    out = capsys.readouterr().out
    assert end.value.code == 0
    assert told in out
    assert "default: None" not in out
    assert "default: False" not in out


def test_help_does_not_show_the_key(capsys, monkeypatch):
    monkeypatch.setenv("MEMSTRATA_KEY", "ms_secret")
    with pytest.raises(SystemExit):
        cli.main(["bench", "latency", "--help"])
    assert "ms_secret" not in capsys.readouterr().out


@pytest.mark.parametrize("port", ["99999", "-1", "x", ""])
def test_a_port_that_is_none_is_exit_2(capsys, tmp_path, port):
    with pytest.raises(SystemExit) as end:
        cli.main(["serve", "--data", str(tmp_path / "d"), f"--port={port}"])
    assert end.value.code == 2
    assert "is no port: a number from 0 to 65535" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("suite", "option", "wrong"),
    [
        *(("compress", "--share", wrong) for wrong in ("0", "-1", "1.01", "nan", "inf", "x", "")),
        *(("compress", "--repeats", wrong) for wrong in ("0", "-1", "1.5", "x", "９", "9" * 5_000)),
        *(("compress", "--contexts", wrong) for wrong in ("-1", "nan", "inf", "x")),
        ("compress", "--replay", "-5"),
        ("compress", "--summary-tokens", "0"),
        ("context", "--queries", "0"),
        ("latency", "--repeats", "0"),
        ("large-user", "--turns", "-1"),
        ("scale", "--clients", "0"),
    ],
)
def test_a_number_that_measures_nothing_is_exit_2(capsys, suite, option, wrong):
    with pytest.raises(SystemExit) as end:
        cli.main(["bench", suite, f"{option}={wrong}"])
    assert end.value.code == 2
    assert f"argument {option}: {wrong!r} is no " in capsys.readouterr().err


@pytest.mark.parametrize("key", ["kéy", "k\ny"])
def test_a_key_that_no_header_can_hold_is_said(capsys, tmp_path, key):
    for words in (["backup"], ["search", "--user", "u", "x"]):
        assert cli.main([*words, "--url", "http://127.0.0.1:9", "--key", key]) == 1
        assert "keys are of printable ASCII characters" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["search", "context"])
def test_a_text_that_is_not_utf_8_is_said(capsys, command):
    words = [command, "--url", "http://127.0.0.1:9", "--key", "k", "--user", "u", "a\udcffb"]
    assert cli.main(words) == 1
    assert "query: this is no text in UTF-8" in capsys.readouterr().err


def test_a_replica_of_a_folder_without_a_store_ends_and_says_so(capsys, tmp_path):
    (tmp_path / "w").mkdir()
    config = tmp_path / "memstrata.toml"
    config.write_text('[encoder]\nmodel = "hash"\n')
    words = ["serve", "--engine", "local", "--data", tmp_path / "r", "--port", "0", "--config", config]
    assert cli.main([*map(str, words), "--follow", str(tmp_path / "w")]) == 1
    assert "store.json is not there" in capsys.readouterr().err


@pytest.fixture
def serve(tmp_path):
    """Runs a service of the hash encoder until it has said how it is stopped; gives what it said, after SIGTERM."""
    data, config = tmp_path / "d a", tmp_path / "memstrata.toml"
    config.write_text('[encoder]\nmodel = "hash"\n')

    def run(*more):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        words = ["serve", "--engine", "local", "--data", data, "--port", str(port), "--config", config, *more]
        with subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as service:
            alarm = threading.Timer(60, service.kill)
            alarm.start()
            out = "".join(iter_until(service.stdout, "Ctrl-C stops it"))
            service.terminate()
            rest, err = service.communicate()
            alarm.cancel()
        return service.returncode, out + rest, err

    run.data = data
    return run


def iter_until(lines, told):
    for line in lines:
        yield line
        if told in line:
            return


def test_serve_says_where_it_is_once_and_how_it_ended(serve):
    status, out, err = serve("--demo")
    assert status == 0
    assert [err.splitlines()[0].startswith("starting"), err.splitlines()[-1]] == [True, "stopped"]
    assert out.count("Memstrata serves") == 1
    assert out.index("include breakfast?") < out.index("Memstrata serves")
    curl = next(line for line in out.splitlines() if line.startswith("  try")).removeprefix("  try").split("$(cat ")[1]
    assert curl.startswith(f"'{serve.data}/admin.key')")
    assert re.search(r" 'http://127.0.0.1:\d+/v1/sessions\?user_id=lin'$", curl)


def test_serve_names_no_key_file_that_is_not_there(serve):
    assert cli.main(["keys", "create", "--data", str(serve.data), "--tenant", "a"]) == 0
    _, out, _ = serve()
    assert "admin.key" not in out
    assert "curl" not in out
    assert f"memstrata keys create --data '{serve.data}'" in out
