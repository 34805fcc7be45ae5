"""Addresses of objects: keys are percent-encoded, and forms that mean two things are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docllm.schemas.objects.address import ObjectAddress, is_object_uri

_PARTS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/\\"), min_size=1
).filter(lambda part: "%" not in part and part.partition(";")[0] not in {".", ".."})


@pytest.mark.parametrize(
    ("uri", "key"),
    [
        ("s3://bucket/a/b.txt", "a/b.txt"),
        ("gs://bucket.example/a%20b%3F%23.txt", "a b?#.txt"),
        ("az://container/%C3%BC.txt", "ü.txt"),
        ("s3://bucket/", ""),
        ("s3://bucket", ""),
        ("s3://bucket/a/", "a/"),
    ],
)
def test_a_uri_names_a_key(uri: str, key: str) -> None:
    """What is encoded in the URI is the letter in the key."""
    assert ObjectAddress.of(uri).key == key


@given(st.lists(_PARTS, min_size=1))
def test_each_key_has_a_uri_that_names_it(parts: list[str]) -> None:
    """What a listing yields can be read again."""
    address = ObjectAddress("s3", "bucket", "/".join(parts))

    assert ObjectAddress.of(address.uri) == address


@pytest.mark.parametrize(
    "uri",
    [
        "https://host/a",
        "s3://user:key@bucket/a",
        "s3://bucket/a//b",
        "s3://bucket:80/a",
        "s3://b%75cket/a",
        "s3:///a",
        "s3://bucket/../a",
        "s3://bucket/%ff",
        "s3://bucket/a?versionId=1",
    ],
)
def test_other_forms_are_refused(uri: str) -> None:
    """A key that a store or a program could read in another way is no address."""
    with pytest.raises(ValueError, match=r"^an? "):
        ObjectAddress.of(uri)


def test_a_folder_is_no_object() -> None:
    """Only the three schemes mean objects."""
    assert [is_object_uri(text) for text in ("s3://a/", "gs://a", "az://a", "docs", "s3/x")] == [
        True,
        True,
        True,
        False,
        False,
    ]
