"""The command line: words, exit codes, one JSON object last."""

import json
import socket
import subprocess
import sys

import pytest

from serve_app import cli
from tests.client.answering import Answering
from tests.demo.test_show import CONTEXT

FOUND = {"results": [{"session_id": "s1", "id": "t-3", "content": "预算 9000 元", "scores": {"dense": 0.5}}]}
READY = {
    "/readyz": [(200, {}, {})],
    "/v1/context": [(200, {}, CONTEXT)],
    "/v1/search": [(200, {}, FOUND)],
}


def stored(status):
    return [(201, {}, {"results": [{"id": str(n), "status": status} for n in range(15)]})]


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch):
    monkeypatch.delenv("MEMSTRATA_KEY", raising=False)


def test_keys_create_prints_the_key_once(tmp_path, capsys):
    words = ["keys", "create", "--data", str(tmp_path), "--tenant", "a", "--user", "u", "--json"]
    assert cli.main(words) == 0
    made = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (made["tenant"], made["role"], made["user_id"]) == ("a", "app", "u")
    assert made["key"] not in (tmp_path / "keys.json").read_text()


def test_search_prints_the_answer_as_json(capsys):
    with Answering({"/v1/search": [(200, {}, {"results": [{"id": "1"}]})]}) as service:
        words = ["search", "--url", service.url, "--key", "k", "--user", "u", "-k", "3", "--json", "where"]
        assert cli.main(words) == 0
    assert json.loads(capsys.readouterr().out) == {"results": [{"id": "1"}]}
    assert service.asked[0][3] == {"user_id": "u", "query": "where", "k": 3, "mode": "hybrid", "explain": True}


def test_context_is_shown_to_a_person(capsys):
    with Answering(READY) as service:
        assert cli.main(["context", "--url", service.url, "--key", "k", "--user", "u", "where"]) == 0
    assert "300 of 1000 tokens" in capsys.readouterr().out


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


def test_no_key_at_all_is_said(capsys):
    assert cli.main(["search", "--user", "u", "x"]) == 1
    assert "MEMSTRATA_KEY" in capsys.readouterr().err


@pytest.mark.parametrize(("status", "told"), [("stored", "30 of 30 stored"), ("duplicate", "stored already")])
def test_demo_tells_a_second_tour_from_a_first(capsys, status, told):
    with Answering({**READY, "/v1/sessions": stored(status)}) as service:
        assert cli.main(["demo", "--url", service.url, "--key", "k"]) == 0
    assert told in capsys.readouterr().out


def test_ingest_of_a_rejected_turn_is_exit_1(tmp_path, capsys):
    path = tmp_path / "turns.jsonl"
    path.write_text(json.dumps({"user_id": "u", "session_id": "s", "id": "1", "role": "user", "content": "x"}))
    answer = (201, {}, {"results": [{"id": "1", "status": "rejected", "error": "conflict"}]})
    with Answering({"/v1/sessions": [answer]}) as service:
        assert cli.main(["ingest", "--url", service.url, "--key", "k", "--json", str(path)]) == 1
    told = capsys.readouterr()
    assert json.loads(told.out.splitlines()[-1]) == {"stored": 0, "duplicate": 0, "rejected": 1}
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
    done = subprocess.run([sys.executable, "-m", "serve_app.cli", "no-such-command"], capture_output=True, check=False)
    assert done.returncode == 2
