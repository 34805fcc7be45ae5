"""Documents below no allowed prefix, and the setting that would allow them."""

from docllm.producer.input.warnings.unallowed_documents import UnallowedDocuments


def found(uris: list[str], *prefixes: str) -> tuple[int, str]:
    documents = UnallowedDocuments(prefixes)
    for uri in uris:
        documents.add(uri)
    return documents.count, str(documents).removeprefix("DOCLLM_DOCUMENT_ALLOW=")


def test_what_lies_below_a_prefix_is_not_counted() -> None:
    """The present prefixes stay in the setting."""
    uris = ["s3://b/in/1", "s3://b/in/2", "s3://b/other/3"]

    assert found(uris, "s3://b/in/") == (1, "s3://b/in/,s3://b/other/")


def test_the_setting_names_the_folder_of_each_bucket() -> None:
    """The deepest folder that holds all documents of a bucket or a server."""
    uris = ["s3://b/in/a/1", "s3://b/in/b/2", "s3://b/in/b/c/3", "https://h/x/y?z=/../1"]

    assert found(uris) == (4, "s3://b/in/,https://h/x/")


def test_no_more_than_some_are_shown() -> None:
    """A list of any number of buckets says that there are others."""
    count, setting = found([f"gs://b{number}/a" for number in range(5)])

    assert (count, setting) == (5, "gs://b0/,gs://b1/,gs://b2/, and others")
