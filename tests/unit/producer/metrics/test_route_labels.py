"""Routes as labels: a closed set, whatever tasks name."""

from docllm.producer.metrics.family import RouteLabels


def test_routes_of_the_settings_are_labels_and_others_share_one() -> None:
    """A task without a route is one of the default route."""
    routes = RouteLabels(["fast", "slow"])
    assert [routes.label(name) for name in ("fast", "default", "", "x" * 64)] == [
        "fast",
        "default",
        "default",
        "_other",
    ]


def test_there_are_never_more_than_a_few_labels() -> None:
    """Settings with hundreds of routes keep the labels of the first ones."""
    routes = RouteLabels([f"r{number}" for number in range(300)], most=3)
    assert {routes.label(f"r{number}") for number in range(300)} == {"r0", "r1", "_other"}
