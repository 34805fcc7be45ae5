"""The rule of allowed prefixes: whole segments, and no URI that can be read in two ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docllm.schemas.task.allowed_uris import allowed, require_prefix

PREFIXES = (
    "s3://bucket/reports/",
    "https://docs.example.com/public/",
    "https://all.example.com/",
    "file:///out/results/",
    "gs://other/a%20b/",
)


@pytest.mark.parametrize(
    "uri",
    [
        "s3://bucket/reports/2024.txt",
        "s3://bucket/reports/a/b/c..d/...txt",
        "https://docs.example.com/public/a?x=1&y=../..",
        "https://DOCS.example.com:443/public/a",
        "https://all.example.com/",
        "https://all.example.com",
        "https://all.example.com/.well-known/x",
        "file:///out/results/a.json",
        "gs://other/a%20b/c",
        "gs://other/%61%20b/100%25",
    ],
)
def test_a_uri_below_a_prefix_is_allowed(uri: str) -> None:
    """Encoded letters are the letters; a default port is none."""
    assert allowed(uri, PREFIXES)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "s3://bucket/reports",
        "s3://bucket/reports2/a",
        "s3://bucket/REPORTS/a",
        "s3://bucket2/reports/a",
        "s3://Bucket/reports/a",
        "gs://bucket/reports/a",
        "S3://bucket/reports/a",
        "s3:/bucket/reports/a",
        "s3://bucket/reports/../secret",
        "s3://bucket/reports/%2e%2e/secret",
        "s3://bucket/reports/.%2E/secret",
        "s3://bucket/reports/%252e%252e/secret",
        "s3://bucket/reports/./a",
        "s3://bucket/reports/a%2f..%2f..%2fsecret",
        "s3://bucket/reports/a%5c..%5csecret",
        "s3://bucket/reports/a\\..\\secret",
        "s3://bucket/reports/a?version=1",
        "s3://bucket/reports/a#b",
        "s3://bucket/reports/%00a",
        "s3://bucket/x/../reports/a",
        "s3://bucket//reports/a",
        "s3://me@bucket/reports/a",
        "https://docs.example.com/public/..;/admin",
        "https://docs.example.com/public/..;a=b/admin",
        "https://docs.example.com:8443/public/a",
        "https://docs.example.com./public/a",
        "https://docs.example.com@evil.example/public/a",
        "https://me:secret@docs.example.com/public/a",
        "https://evil.example/https://docs.example.com/public/a",
        "https://docs.example.com\\@evil.example/public/a",
        "https://docs.example.com%2eevil.example/public/a",
        "https://docs.example.com\t.evil.example/public/a",
        "https://docs.example.com/pub\nlic/a",
        "http://docs.example.com/public/a",
        "https://[::1/public/a",
        "https:///public/a",
        "file://localhost/out/results/a",
        "file:///out/results/../../etc/passwd",
        "ftp://all.example.com/a",
        "https://\u0430ll.example.com/a",
    ],
)
def test_any_other_uri_is_not(uri: str) -> None:
    """Another place, another case, or a form that some program could read as another place."""
    assert not allowed(uri, PREFIXES)


def test_nothing_is_allowed_by_default() -> None:
    """Without prefixes no URI is allowed."""
    assert not allowed("s3://bucket/reports/a", ())


@given(st.text(), st.sampled_from(PREFIXES))
def test_no_text_fails(text: str, prefix: str) -> None:
    """Any text has an answer, and what follows a prefix never leaves its authority."""
    assert allowed(prefix + text, [prefix]) in {True, False}
    assert not allowed(text, ())


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_prefix_is_taken_as_it_is(prefix: str) -> None:
    """The forms of the documentation pass."""
    assert require_prefix(prefix) == prefix


@pytest.mark.parametrize(
    "prefix",
    [
        "s3cret",
        "s3://bucket",
        "s3://bucket/s3cret",
        "s3://bucket/s3cret/../",
        "https://me:s3cret@docs.example.com/",
        "https://docs.example.com/?token=s3cret/",
        "http://docs.example.com/s3cret/",
        "https:///s3cret/",
        "https://[s3cret/",
        "file:///",
        "file://s3cret/",
        "*",
    ],
)
def test_any_other_prefix_is_refused_without_being_shown(prefix: str) -> None:
    """A prefix without a slash at its end would allow `reports-of-others` too."""
    with pytest.raises(ValueError, match=r"s3://BUCKET/FOLDER/|all files") as caught:
        require_prefix(prefix)
    assert "s3cret" not in str(caught.value)
