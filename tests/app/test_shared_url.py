from __future__ import annotations

import pytest

from app.errors import SharedAddressError
from app.shared_url import checked, masked, unmasked

URL = "postgresql://ada:se%20cret@nas.local:5433/reprise?sslmode=require"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (URL, "postgresql://ada:***@nas.local:5433/reprise?sslmode=require"),
        ("postgres://nas.local/reprise", "postgres://nas.local/reprise"),
        ("postgresql:///reprise?host=/run/pg", "postgresql:///reprise?host=/run/pg"),
        (
            "postgresql://h/d?password=x&sslpassword=y",
            "postgresql://h/d?password=***&sslpassword=***",
        ),
        ("postgresql://a:b:c@d@h/d", "postgresql://a:***@h/d"),
        ("ada:secret@nas.local", "***"),
        ("http://a:b@h/d", "***"),
        ("postgresql://[a:b@h/d", "***"),
        ("", ""),
    ],
)
def test_no_password_is_shown(url, shown):
    assert masked(url) == shown


def test_what_libpq_understands_is_passed_on():
    assert checked(f" {URL} ") == URL
    assert checked("postgres://h/d") == "postgresql://h/d"
    assert checked("postgresql:///d?host=/run/pg") == "postgresql:///d?host=/run/pg"


@pytest.mark.parametrize("url", ["nas.local", "http://h/d", "postgresql://h", "postgresql://[h/d"])
def test_anything_else_is_refused(url):
    with pytest.raises(SharedAddressError):
        checked(url)


def test_the_hidden_password_is_put_back_for_its_own_server_only():
    assert unmasked(masked(URL), URL) == URL
    changed = masked(URL).replace("reprise", "other")
    assert unmasked(changed, URL) == URL.replace("reprise", "other")
    stolen = masked(URL).replace("nas.local", "evil.example")
    assert unmasked(stolen, URL) == stolen
    assert unmasked("postgresql://ada:new@nas.local:5433/reprise", URL).count("new") == 1
