"""pip in an image build reaches its index as pip on this machine does."""

from pathlib import Path

from tests.support.cluster.pip_settings import DEBIAN_BUNDLE, read


def test_a_later_file_overrules_an_earlier_one_and_the_environment_both(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("[global]\nindex-url = https://a.invalid/\nretries = 1\nproxy = http://p.invalid\n")
    second.write_text("[install]\nindex-url = https://b.invalid/\nretries = 2\n")
    settings = read([first, second, tmp_path / "missing"], {"PIP_RETRIES": "3"})
    assert settings.options == {
        "cert": DEBIAN_BUNDLE,
        "index-url": "https://b.invalid/",
        "proxy": "http://p.invalid",
        "retries": "3",
    }


def test_what_would_change_where_pip_installs_is_not_passed_on() -> None:
    settings = read([], {"PIP_USER": "1", "PIP_TARGET": "/elsewhere", "PIP_REQUIRE_VIRTUALENV": "1"})
    assert settings.options == {"cert": DEBIAN_BUNDLE}


def test_a_password_with_a_per_cent_sign_comes_through(tmp_path: Path) -> None:
    address = "https://me:a%20b@index.invalid/simple"
    written = tmp_path / "pip.conf"
    written.write_text(read([], {"PIP_INDEX_URL": address}).text())
    assert read([written], {}).options["index-url"] == address


def test_files_are_what_the_build_has_to_see_of_this_machine(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.crt"
    bundle.touch()
    settings = read(
        [],
        {
            "REQUESTS_CA_BUNDLE": str(bundle),
            "PIP_FIND_LINKS": f"https://wheels.invalid/ {tmp_path} /does/not/exist",
        },
    )
    assert settings.files() == [bundle, tmp_path]
