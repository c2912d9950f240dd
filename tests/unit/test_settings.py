"""Where settings come from, and what is said of wrong ones."""

from pathlib import Path

import pytest

from api.settings import Settings
from kernel.errors import InvalidInput


@pytest.fixture
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MUSTER_STATE_DIR", str(tmp_path))
    return tmp_path


def test_defaults(state_dir: Path) -> None:
    settings = Settings.load()
    assert (settings.host, settings.port) == ("127.0.0.1", 8266)
    assert settings.database == f"sqlite:///{state_dir}/muster.db"
    assert (settings.lease_ttl_s, settings.max_log_bytes) == (600, 2**30)


def test_the_environment_wins_over_the_file(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (state_dir / "muster.toml").write_text('port = 1\nHOST = "0.0.0.0"')
    monkeypatch.setenv("MUSTER_PORT", "2")
    settings = Settings.load()
    assert (settings.port, settings.host) == (2, "0.0.0.0")


def test_another_file(state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "other.toml"
    file.write_text("run_retention_days = 7")
    monkeypatch.setenv("MUSTER_CONFIG", str(file))
    assert Settings.load().run_retention_days == 7


@pytest.mark.parametrize(
    ("toml", "reason"),
    [
        ("port = 'x'", "port: Input should be a valid integer"),
        ("callback_url = 'muster:8266'", "callback_url: must be http://host or https://host"),
        ("callback_url = 'http://'", "callback_url: must be http://host or https://host"),
        ("callback_url = 'http://u:p@muster'", "callback_url: must be http://host or https://host"),
        ("callback_url = 'http://muster/?a=b'", "callback_url: must be http://host or https://host"),
        ("callback_url = 'http://muster:x'", "callback_url: Port could not be cast to integer value"),
        ("lease_ttl_s = 10", "lease_ttl_s: Input should be greater than or equal to 30"),
        (
            "ray_default_target = 'nowhere/x'",
            "ray_default_target: must be clusters/<name>, groups/<name> or jobs/<name>",
        ),
        ("blob_store = 'bucket'", "blob_store: must be s3://bucket/prefix or cos://name-appid/prefix"),
        ("blob_store = 's3://bucket/../x'", "blob_store: must be s3://bucket/prefix or cos://name-appid/prefix"),
        ("blob_store = 'cos://b-1250000000'", "blob_store: cos:// needs blob_region, blob_key_id and blob_secret_key"),
        ("blob_endpoint = 'https://u:p@s3'", "blob_endpoint: must be http://host or https://host"),
        ("object_endpoints = 'https://a b'", "object_endpoints: must be http://host or https://host"),
        ("port = ", "Invalid value"),
    ],
)
def test_what_is_wrong_is_named(state_dir: Path, toml: str, reason: str) -> None:
    (state_dir / "muster.toml").write_text(toml)
    with pytest.raises(InvalidInput) as refused:
        Settings.load()
    told = f"{refused.value.params['source']}: {refused.value.params['reason']}"
    assert str(state_dir / "muster.toml") in told
    assert reason in told


@pytest.mark.parametrize("url", ["http://muster:8266/", "http://muster:8266", "https://[::1]/muster/"])
def test_an_address_to_call_ends_without_a_slash(state_dir: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("MUSTER_CALLBACK_URL", url)
    assert Settings.load().callback_url == url.rstrip("/")


def test_a_variable_that_is_wrong_is_named(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_PORT", "x")
    with pytest.raises(InvalidInput) as refused:
        Settings.load()
    assert refused.value.params["source"] == "MUSTER_PORT"


def test_a_name_that_is_none_is_told_with_the_nearest(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (state_dir / "muster.toml").write_text("prot = 80")
    with pytest.raises(InvalidInput, match="UNKNOWN_SETTING") as refused:
        Settings.load()
    assert refused.value.params == {"source": f"{state_dir / 'muster.toml'}, prot", "nearest": "port"}
    monkeypatch.setenv("MUSTER_RUN_RETENTION", "7")
    with pytest.raises(InvalidInput, match="UNKNOWN_SETTING") as refused:
        Settings.load()
    assert refused.value.params == {"source": "MUSTER_RUN_RETENTION", "nearest": "MUSTER_RUN_RETENTION_DAYS"}


def test_variables_of_others_are_left_alone(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MUSTER_ADDRESS", "MUSTER_TOKEN", "MUSTER_TEST_NO_SKIP"):
        monkeypatch.setenv(name, "x")
    assert Settings.load().state_dir == state_dir


@pytest.mark.parametrize("secret", ["short", "a" * 40, "with blanks in between", "schlüssel-des-hauses"])
def test_a_secret_that_is_easily_guessed_or_cannot_be_sent(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    monkeypatch.setenv("MUSTER_ADMIN_TOKEN", secret)
    with pytest.raises(InvalidInput, match="SECRET_TOO_WEAK") as refused:
        Settings.load()
    assert refused.value.params == {"source": "MUSTER_ADMIN_TOKEN", "length": 16, "variety": 8}


def test_a_named_file_that_is_missing(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_CONFIG", str(state_dir / "none.toml"))
    with pytest.raises(InvalidInput, match="INVALID_SETTING"):
        Settings.load()


def test_every_setting_is_explained() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_secrets_are_not_shown() -> None:
    settings = Settings(admin_token="mst_secret-of-an-admin", database_url="postgresql://u:hidden@h/d")
    assert "mst_secret" not in repr(settings)
    assert "hidden" not in repr(settings)
